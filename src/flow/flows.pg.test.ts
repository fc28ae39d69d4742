import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { orderFlow, recordEvents, type Seen } from "../../test/support/flows.ts";
import { HandlerRegistry } from "../inbox/index.ts";
import { pgDatabase } from "../storage/index.ts";
import { readFlowPath } from "./flow-path.ts";
import { Flows } from "./flows.ts";

const placed: Seen = { id: "1", type: "order.placed", source: "orders", at: 0 };
const reserved: Seen = { id: "2", type: "stock.reserved", source: "stock", after: "1", at: 10 };
const declined: Seen = { id: "3", type: "payment.failed", source: "payments", after: "2", at: 20 };
const released: Seen = { id: "4", type: "stock.released", source: "stock", after: "3", at: 30 };

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = pgDatabase(pool);
  const flows = new Flows({ database, schema: "sagabox", registry: new HandlerRegistry() });
  flows.watch(orderFlow);
  const record = (correlationId: string, agoMs: number, ...seen: readonly Seen[]): Promise<void> =>
    recordEvents(pool, correlationId, agoMs, ...seen);
  const count = async (where: string): Promise<number> =>
    (await pool.query(`select 1 from sagabox.flow_event where ${where}`)).rowCount ?? 0;
  return { database, flows, record, count };
}

const HOUR = 3_600_000;
const ids = (paths: readonly { readonly correlationId: string }[]) =>
  paths.map(({ correlationId }) => correlationId);

test("F9: a recorded path is read back, and an unknown correlation id has no path", async () => {
  const { database, flows, record } = await setup();
  await record("o-1", 0, placed, reserved, declined, released);
  const path = await readFlowPath(database, "sagabox", orderFlow, "o-1");
  expect(path).toMatchObject({
    flow: "order",
    correlationId: "o-1",
    status: "compensated",
    beganAt: "2026-01-01T12:00:00.000000Z",
    durationMs: 30,
  });
  expect(path?.steps.map(({ type, parent }) => [type, parent])).toEqual([
    ["order.placed", null],
    ["stock.reserved", "o-1-1"],
    ["payment.failed", "o-1-2"],
    ["stock.released", "o-1-3"],
  ]);
  expect(await flows.paths("o-1")).toEqual([path]);
  expect(await readFlowPath(database, "sagabox", orderFlow, "o-2")).toBeUndefined();
  expect(await flows.paths("o-2")).toEqual([]);
});

test("F9: idle paths are found, longest idle first, and finished paths are judged once", async () => {
  const { flows, record, count } = await setup();
  await record("stuck", HOUR, placed, reserved);
  await record("older", 2 * HOUR, placed);
  await record("lively", 1_000, placed);
  await record("done", HOUR, placed, reserved, declined, released);
  const found = await flows.unfinished({ idleFor: "15m" });
  expect(ids(found)).toEqual(["older", "stuck"]);
  expect(found.map(({ waitsFor }) => waitsFor[0]?.by)).toEqual(["stock", "payments"]);
  expect(await count("not open")).toBe(4);
  expect(ids(await flows.unfinished({ idleFor: "15m", limit: 1 }))).toEqual(["older"]);
  expect(ids(await flows.unfinished({ idleFor: 0 }))).toEqual(["older", "stuck", "lively"]);
});

test("an event that arrives after its path was closed reopens the path", async () => {
  const { flows, record, count } = await setup();
  await record("o", HOUR, placed, reserved, declined, released);
  expect(await flows.unfinished()).toEqual([]);
  await record("o", HOUR, { ...placed, id: "9" });
  expect(await flows.unfinished()).toMatchObject([{ correlationId: "o", status: "compensating" }]);
  expect(await count("open")).toBe(1);
});

test("many paths are found page by page, none twice and none left out", async () => {
  const { flows, database } = await setup();
  const session = await database.begin();
  await session.query(
    `insert into sagabox.flow_event (flow, message_id, correlation_id, type, source, happened_at, recorded_at)
     select 'order', 'm' || n, 'c' || n, case when n % 2 = 0 then 'order.placed' else 'shipment.scheduled' end, 'x',
            now(), now() - interval '1 hour' - (n % 7) * interval '1 second'
       from generate_series(1, 1000) as n`,
  );
  await session.commit();
  const found = ids(await flows.unfinished({ limit: 1_000 }));
  expect([found.length, new Set(found).size]).toEqual([500, 500]);
});

test("forgetEvents closes finished paths and deletes old paths in batches", async () => {
  const { flows, record, count } = await setup();
  await record("old", 3 * HOUR, placed, reserved);
  await record("long", 3 * HOUR, placed);
  await record("long", 0, reserved);
  await record("done", 0, placed, reserved, declined, released);
  expect(await flows.forgetEvents({ olderThanMs: 2 * HOUR, batchSize: 1 })).toBe(2);
  expect(await count("correlation_id = 'old'")).toBe(0);
  expect(await count("correlation_id = 'long' and open")).toBe(2);
  expect(await count("correlation_id = 'done' and not open")).toBe(4);
});

test("two flows with one name cannot be watched", async () => {
  const { flows } = await setup();
  expect(() => flows.watch(orderFlow)).toThrow(expect.objectContaining({ code: "FLOW_INVALID" }));
});
