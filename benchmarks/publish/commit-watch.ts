import { AsyncLocalStorage } from "node:async_hooks";
import type pg from "pg";

interface Committed {
  atNs: bigint;
}

const current = new AsyncLocalStorage<Committed>();

/** Records when the answer to COMMIT arrives, before any other code sees it. */
export function watchCommits(pool: pg.Pool): void {
  pool.on("connect", (client) => {
    const send = client.query.bind(client) as (...args: unknown[]) => Promise<unknown>;
    const query = (...args: unknown[]): Promise<unknown> => {
      const answer = send(...args);
      const committed = args[0] === "commit" ? current.getStore() : undefined;
      if (committed !== undefined) void answer.then(() => (committed.atNs = process.hrtime.bigint()));
      return answer;
    };
    Object.assign(client, { query });
  });
}

/** Runs a transaction on a watched pool; answers with its result and the moment of its commit. */
export async function committedAt<T>(work: () => Promise<T>): Promise<{ result: T; committedNs: bigint }> {
  const committed: Committed = { atNs: 0n };
  const result = await current.run(committed, work);
  if (committed.atNs === 0n) throw new Error("no COMMIT was seen");
  return { result, committedNs: committed.atNs };
}
