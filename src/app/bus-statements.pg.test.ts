import type pg from "pg";
import postgresJs from "postgres";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { orderOverHttp, type ListDriver } from "../../examples/guides/publishing.ts";
import { ada, Registered, subjectsBus, subjectsDatabase } from "../../test/support/data-subjects.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { event, type PublishOptions } from "../message/index.ts";
import type { Bus } from "./bus.ts";
import type { BusOptions } from "./bus-options.ts";
import type { SqlStatement } from "./bus-transaction.ts";
import { createBus } from "./create-bus.ts";

const schema = z.object({ n: z.number() });
const Counted = event("counted", { schema, key: ({ n }) => `k${n}` });
const Strict = event("strict", {
  schema,
  key: ({ n }) => `k${n}`,
  order: "strict",
  onDead: "hold",
  ttl: "1h",
});

async function setup(options: Partial<BusOptions> = {}) {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false, ...options });
  onTestFinished(async () => void (await bus.stop()));
  return { pool, url, bus };
}

/** Runs the statements as a driver for lists of statements does. Returns the rows of the last one. */
async function runAll(
  pool: pg.Pool,
  statements: readonly SqlStatement[],
  end = "commit",
): Promise<unknown[]> {
  const client = await pool.connect();
  await client.query("begin");
  let rows: unknown[] = [];
  for (const { text, values } of statements) ({ rows } = await client.query(text, values));
  await client.query(end);
  client.release();
  return rows;
}

const cases: readonly (readonly [string, PublishOptions])[] = [
  ["as usual", {}],
  ["with options", { priority: 9, ttl: "5m", headers: { tenant: "a" }, sagaId: "s", key: "other" }],
  ["later", { delay: "1h" }],
  ["at a time", { at: new Date("2031-01-01T00:00:00Z") }],
  ["with an id", { id: "own" }],
  ["later with an id", { id: "own", delay: "1h" }],
];

test.each(cases)("the statements write the rows of bus.publish: %s", async (_, options) => {
  for (const contract of [Counted, Strict]) {
    const { pool, bus } = await setup();
    const rows = async (): Promise<unknown[]> =>
      (
        await pool.query(
          `select to_jsonb(message) - '{id,seq,correlation_id,traceparent,written_at,written_on,expires_at}'::text[] as row,
                  (expires_at - written_at)::text as lives, null as waits, (select count(*) from sagabox.outbox)::int as waiting
             from sagabox.message
           union all
           select to_jsonb(scheduled) - '{id,correlation_id,traceparent,written_at,due_at,expires_at}'::text[],
                  (expires_at - due_at)::text, round(extract(epoch from due_at - written_at) / 60)::text, 0 from sagabox.scheduled`,
        )
      ).rows;
    await runAll(pool, await bus.statements(contract, { n: 7 }, options), "rollback");
    expect(await rows()).toEqual([]);
    await runAll(pool, await bus.statements(contract, { n: 7 }, options));
    const listed = await rows();
    await pool.query("truncate sagabox.message, sagabox.outbox, sagabox.scheduled, sagabox.published_id");
    const client = await pool.connect();
    await client.query("begin");
    await bus.publish(client, contract, { n: 7 }, options);
    await client.query("commit");
    client.release();
    expect(listed).toEqual(await rows());
    expect(listed).toHaveLength(1);
  }
});

test("A3: an id writes one message, and the last statement says whether it was new", async () => {
  const { pool, bus } = await setup();
  const generated = await bus.transaction((tx) => bus.publish(tx, Counted, { n: 1 }));
  const run = async (options: PublishOptions): Promise<number> =>
    (await runAll(pool, await bus.statements(Counted, { n: 1 }, options))).length;
  expect(await run({ id: "own" })).toBe(1);
  expect(await run({ id: "own" })).toBe(0);
  expect(await run({ id: "own", delay: "1h" })).toBe(0);
  expect(await run({ id: "later", delay: "1h" })).toBe(1);
  expect(await run({ id: "later", delay: "1h" })).toBe(0);
  expect(await run({ id: generated.id })).toBe(0);
  expect(await run({ id: generated.id, delay: "1h" })).toBe(0);
  const { rows } = await pool.query(
    "select (select count(*) from sagabox.message)::int as now, (select count(*) from sagabox.scheduled)::int as later",
  );
  expect(rows).toEqual([{ now: 2, later: 1 }]);
});

test("rule 5: strict statements lock the key first", async () => {
  const { bus } = await setup();
  const [lock, write, ...rest] = await bus.statements(Strict, { n: 1 });
  expect(lock?.text).toContain("pg_advisory_xact_lock");
  expect(write?.text).toContain("sagabox");
  expect(rest).toEqual([]);
});

test("a message from statements of postgres.js reaches its handler, in the trace and with the correlation that were given", async () => {
  const { url, bus } = await setup();
  const sql = postgresJs(url, { onnotice: () => undefined });
  onTestFinished(() => sql.end());
  const handled: unknown[] = [];
  bus.on(Counted, { consumer: "c" }, ({ data, correlationId, source }) => {
    handled.push([data, correlationId, source]);
  });
  await bus.run();
  const statements = await bus.statements(Counted, { n: 1 }, { correlationId: "c-1" });
  await sql.begin(async (tx) => {
    for (const { text, values } of statements) await tx.unsafe(text, values);
  });
  await expect.poll(() => handled, { timeout: 30_000 }).toEqual([[{ n: 1 }, "c-1", "shop"]]);
});

test("personal fields are encrypted in the statements", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const statements = await bus.statements(Registered, ada);
  expect(JSON.stringify(statements)).not.toContain(ada.email);
  await runAll(database.pool, statements);
  const handled: unknown[] = [];
  bus.on(Registered, { consumer: "crm" }, ({ data }) => void handled.push(data.email));
  await bus.run();
  await expect.poll(() => handled, { timeout: 30_000 }).toEqual([ada.email]);
});

test("invalid data, `flush` and a full outbox are refused; the policy drop gives no statements", async () => {
  const { bus, pool } = await setup({ outbox: { overflow: { maxPending: 1, policy: "refuse" } } });
  await expect(bus.statements(Counted, { n: "1" } as never)).rejects.toMatchObject({
    code: "PAYLOAD_INVALID",
  });
  const flush: object = { flush: true };
  await expect(bus.statements(Counted, { n: 1 }, flush)).rejects.toMatchObject({
    code: "OPTIONS_INVALID",
    message: expect.stringContaining("relay"),
  });
  await runAll(pool, await bus.statements(Counted, { n: 1 }));
  const dropping = createBus({
    service: "shop",
    database: pool,
    log: false,
    outbox: { overflow: { maxPending: 1, policy: "drop" } },
  });
  onTestFinished(async () => void (await dropping.stop()));
  const list = (one: Bus) => one.statements(Counted, { n: 1 });
  await expect.poll(() => list(dropping), { timeout: 30_000 }).toEqual([]);
  await expect
    .poll(
      () =>
        list(bus).then(
          () => "written",
          (error: { code?: string }) => error.code,
        ),
      { timeout: 30_000 },
    )
    .toBe("OUTBOX_FULL");
});

test("the example of the guide writes the row and the message together, or neither", async () => {
  const { pool, bus } = await setup();
  await pool.query("create table guide_order (id text primary key)");
  const driver: ListDriver<SqlStatement> = {
    query: (text, values) => ({ text, values: values as string[] }),
    transaction: (queries) => runAll(pool, queries),
  };
  await orderOverHttp(driver, bus, "o-1");
  const { rows } = await pool.query(
    "select id, (select count(*) from sagabox.outbox)::int as waiting from guide_order",
  );
  expect(rows).toEqual([{ id: "o-1", waiting: 1 }]);
});
