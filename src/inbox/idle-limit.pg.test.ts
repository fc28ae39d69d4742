import { expect, test } from "vitest";
import { consumers } from "../../test/support/consumers.ts";
import { until } from "../../test/support/relays.ts";
import type { OwnedTransaction } from "../storage/index.ts";
import type { InboxEngine } from "./engine.ts";
import { receiveOnce } from "./receive-once.ts";

const LEASE_MS = 200;
const receipt = {
  consumer: "billing",
  id: "m-1",
  topic: "events.order.placed",
  type: "order.placed",
  payload: null,
  expiresAt: null,
  deadlineMs: 60_000,
};

/** An engine whose process freezes when its transaction is open: it runs no statements any more. */
function stopped(engine: InboxEngine): InboxEngine {
  const begin = async (
    ...options: Parameters<InboxEngine["database"]["begin"]>
  ): Promise<OwnedTransaction> => {
    const tx = await engine.database.begin(...options);
    const run = tx.run.bind(tx);
    const isStay = (name: string): boolean => name === engine.sql.stay.name;
    return Object.assign(tx, {
      run: (...[statement, params]: Parameters<typeof run>) =>
        isStay(statement.name) ? new Promise<never>(() => undefined) : run(statement, params),
    });
  };
  return { ...engine, database: { ...engine.database, begin } };
}

test("rule 13: a worker that freezes in its handler keeps the message no longer than its lease", async () => {
  const { engine } = await consumers({ leaseMs: LEASE_MS });
  let reached = (): void => undefined;
  const inside = new Promise<void>((resolve) => (reached = resolve));
  const first = receiveOnce(stopped(engine), receipt, async ({ tx }) => {
    reached();
    await until(() => tx.lost, 30_000);
    throw new Error("went on after it was stopped");
  });
  const failed = expect(first).rejects.toMatchObject({ code: "STORAGE_UNAVAILABLE" });
  await inside;
  expect(await receiveOnce(engine, receipt, () => "done")).toMatchObject({ kind: "processed" });
  await failed;
});

test("rule 13: a handler may wait longer than the lease while its process lives", async () => {
  const { engine, pool } = await consumers({ leaseMs: LEASE_MS });
  const outcome = await receiveOnce(engine, receipt, async ({ tx }) => {
    const { rows } = await tx.query<{ pid: number }>("select pg_backend_pid() as pid");
    await until(async () => {
      const sql =
        "select clock_timestamp() - xact_start > interval '1 second' as long from pg_stat_activity where pid = $1";
      const found = await pool.query<{ long: boolean }>(sql, [rows[0]?.pid]);
      if (found.rows[0] === undefined) throw new Error("the session was cut");
      return found.rows[0].long;
    });
    await tx.query("insert into effect (consumer, id) values ('billing', 'm-1')");
  });
  expect(outcome).toMatchObject({ kind: "processed" });
});
