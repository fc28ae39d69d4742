import { expect, test } from "vitest";
import { documentBus, TestEvent } from "./document-bus.ts";

// Scenarios of the design documents, under their names. Sagas have their own.

test("A1, H4, test_atomic_save_and_outbox: what fails before the commit leaves neither state nor message", async () => {
  const { bus, pool, rows, statuses } = await documentBus();
  await pool.query("create table state (id text primary key, step text)");
  await pool.query("insert into state values ('saga-1', 'new')");
  const failing = bus.transaction(async (tx) => {
    await tx.query("update state set step = 'completed'");
    await bus.publish(tx, TestEvent, { attempt: 1 }, { sagaId: "saga-1" });
    throw new Error("Simulated failure");
  });
  await expect(failing).rejects.toThrow("Simulated failure");
  expect(await rows("select step from state")).toEqual([{ step: "new" }]);
  expect(await statuses()).toEqual([]);
});

test("A1, H4, test_atomic_save_and_outbox: state and event commit together in the caller's transaction", async () => {
  const { bus, pool, rows, statuses } = await documentBus();
  await pool.query("create table state (id text primary key)");
  const client = await pool.connect();
  await client.query("begin");
  await client.query("insert into state values ('saga-1')");
  await bus.publish(client, TestEvent, { attempt: 1 });
  await client.query("rollback");
  client.release();
  expect(await rows("select 1 from state")).toEqual([]);
  expect(await statuses()).toEqual([]);
});

test("A3, H4, test_idempotent_outbox_insert: one id twice is one message, the first one", async () => {
  const { bus, rows } = await documentBus({ optimistic: false });
  const publish = (attempt: number) =>
    bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt }, { id: "event-1" }));
  expect(await publish(1)).toEqual({ id: "event-1", written: true });
  expect(await publish(2)).toEqual({ id: "event-1", written: false });
  expect(await rows("select payload from sagabox.outbox_events")).toEqual([{ payload: { attempt: 1 } }]);
});

// The documents lock rows and skip locked ones. Here workers lease lanes, passing over those another is taking, so that a
// row needs no own claim and the order of a key is kept. The promise is the same: no message is taken twice.
test("A6, H4, test_claim_uses_skip_locked: two workers share the messages, and none is sent by both", async () => {
  const { bus, another, transport, rows } = await documentBus({ optimistic: false });
  const other = another("worker-2");
  await Promise.all([bus.run(), other.run()]);
  const owners =
    "select count(distinct owner)::int as workers, count(owner)::int as lanes from sagabox.relay_lane";
  await expect.poll(() => rows(owners), { timeout: 10_000 }).toEqual([{ workers: 2, lanes: 256 }]);
  for (let n = 0; n < 100; n++) {
    await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: n }));
  }
  await expect.poll(() => transport.published.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(100);
  expect(new Set(transport.published.map((message) => message.id)).size).toBe(100);
  expect(transport.published).toHaveLength(100);
  await expect.poll(() => rows("select distinct relay from sagabox.receipt order by relay")).toHaveLength(2);
});
