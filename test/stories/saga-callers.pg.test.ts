import postgres from "postgres";
import { createBus, saga, type Bus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";

const trip = saga("trip", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
  .run("book", ({ input }) => ({ of: input.id }))
  .noUndo("a test");

test.each(["pg", "postgres.js"])(
  "an instance started in a caller's transaction of %s is written whole, and ends",
  async (driver) => {
    const { pool, url } = await temporaryDatabase({ max: 20, migrated: true });
    const bus = createBus({ service: "travel", database: pool, log: false });
    onTestFinished(async () => void (await bus.stop()));
    bus.register(trip);
    await bus.run();
    await (driver === "pg" ? startByPg(bus, pool) : startByPostgresJs(bus, url));
    const rows = async (query: string): Promise<unknown[]> => (await pool.query(query)).rows;
    const standing = `select status, input, json_typeof(state) as state, state -> 'records' -> 'book' -> 'result' as result
                        from sagabox.saga_instance`;
    await expect
      .poll(() => rows(standing), { timeout: 10_000 })
      .toEqual([{ status: "completed", input: { id: "a" }, state: "object", result: { of: "a" } }]);
    expect(
      await rows(
        `select step, new_status, json_typeof(input) as input, json_typeof(new_state) as changes
           from sagabox.saga_audit_log where version = 1 order by id`,
      ),
    ).toEqual([
      { step: "book", new_status: "in_progress", input: "object", changes: "object" },
      { step: null, new_status: "running", input: null, changes: null },
    ]);
  },
);

async function startByPg(
  bus: Bus,
  pool: Awaited<ReturnType<typeof temporaryDatabase>>["pool"],
): Promise<void> {
  const client = await pool.connect();
  await client.query("begin");
  await bus.start(client, trip, { id: "a" });
  await client.query("commit");
  client.release();
}

async function startByPostgresJs(bus: Bus, url: string): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  await sql.begin(async (tx) => void (await bus.start(tx, trip, { id: "a" })));
  await sql.end();
}
