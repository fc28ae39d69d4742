import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { type BusOptions, createBus, event } from "../index.ts";
import { temporaryDatabase } from "../../test/support/database.ts";

const Noted = event("pooled.noted", { schema: z.object({ n: z.number() }) });

interface Counts {
  parses: number;
  roundTrips: number;
}

/** Counts what a client exchanges with the server while `work` runs. */
async function countOn({ connection }: { connection?: unknown }, work: () => Promise<unknown>) {
  const counts: Counts = { parses: 0, roundTrips: 0 };
  const stream = connection as {
    on(event: string, listener: () => void): void;
    removeListener(event: string, listener: () => void): void;
  };
  const onParse = (): void => void counts.parses++;
  const onReady = (): void => void counts.roundTrips++;
  stream.on("parseComplete", onParse);
  stream.on("readyForQuery", onReady);
  await work();
  stream.removeListener("parseComplete", onParse);
  stream.removeListener("readyForQuery", onReady);
  return counts;
}

async function setup(options: Partial<BusOptions> = {}) {
  const { url } = await temporaryDatabase({ migrated: true });
  // One connection, so that all statements run on the one that is watched.
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  onTestFinished(() => pool.end());
  const outbox = { optimistic: false };
  const bus = createBus({ service: "shop", database: pool, log: false, outbox, ...options });
  onTestFinished(async () => void (await bus.stop()));
  const client = await pool.connect();
  onTestFinished(() => client.release());
  const publishTen = async (): Promise<void> => {
    await client.query("begin");
    for (let n = 0; n < 10; n++) await bus.publish(client, Noted, { n });
    await client.query("commit");
  };
  const prepared = async (): Promise<number> =>
    (await client.query<{ n: number }>("select count(*)::int as n from pg_prepared_statements")).rows[0]?.n ??
    -1;
  return { bus, client, publishTen, prepared };
}

/** BEGIN, ten publishes, COMMIT; the first write of a transaction takes two more to prove that it is inside. */
const roundTrips = 14;

test("a bus without `directUrl` prepares its statements once per connection", async () => {
  const { client, publishTen, prepared } = await setup();
  await publishTen();
  const known = await prepared();
  expect(known).toBeGreaterThan(0);
  expect(await countOn(client, publishTen)).toEqual({ parses: 0, roundTrips });
  expect(await prepared()).toBe(known);
});

test.each([{ directUrl: false } as const, { directUrl: "postgres://localhost:1/unused" }])(
  "a bus with $directUrl as its direct URL leaves no prepared statement behind, in as many round trips",
  async (options) => {
    const { client, publishTen, prepared } = await setup(options);
    await publishTen();
    expect(await countOn(client, publishTen)).toEqual({ parses: 11, roundTrips });
    expect(await prepared()).toBe(0);
  },
);

test("what is neither an address nor a pool nor false is refused", () => {
  for (const directUrl of ["mysql://localhost", "", 5, {}] as unknown as false[])
    expect(() =>
      createBus({ service: "shop", database: "postgres://localhost/shop", directUrl, log: false }),
    ).toThrowError(expect.objectContaining({ code: "OPTIONS_INVALID" }));
});
