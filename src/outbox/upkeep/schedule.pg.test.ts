import { expect, onTestFinished, test } from "vitest";
import { outboxDatabase } from "../../../test/support/relays.ts";
import { ScheduleMover } from "./schedule.ts";

async function setup() {
  const { database, observer, rows, write } = await outboxDatabase();
  const lanes: number[] = [];
  const mover = (batchSize = 500): ScheduleMover =>
    new ScheduleMover({
      database,
      schema: "sagabox",
      observer,
      batchSize,
      onMoved: (moved) => lanes.push(...moved),
    });
  return { observer, rows, write, mover, lanes };
}

test("A14: a delayed message is not in the outbox before its time, and is moved there when it is due", async () => {
  const { observer, rows, write, mover, lanes } = await setup();
  await write({ message: { id: "soon", key: "k", data: '{"n":1}' }, delayMs: 40 });
  await write({ message: { id: "late" }, delayMs: 60_000 });
  expect(await rows("select 1 from sagabox.outbox")).toEqual([]);
  const service = mover();
  await service.start();
  onTestFinished(() => service.stop());
  await observer.until("scheduled.due");
  const moved = await rows(`select outbox.message_id, outbox.lane, data, attempts, lease_until
                              from sagabox.outbox join sagabox.message on message.id = message_id and message.seq = outbox.seq`);
  expect(moved).toEqual([
    { message_id: "soon", lane: lanes[0], data: '{"n":1}', attempts: 0, lease_until: null },
  ]);
  expect(await rows("select id from sagabox.scheduled")).toEqual([{ id: "late" }]);
});

test("A14: due messages of a key enter the outbox in the order of their due times", async () => {
  const { rows, write, mover } = await setup();
  await write({ message: { id: "third", key: "k" }, delayMs: 3_000 });
  await write({ message: { id: "first", key: "k" }, delayMs: 1_000 });
  await write({ message: { id: "second", key: "k" }, delayMs: 2_000 });
  await rows("update sagabox.scheduled set due_at = due_at - interval '1 minute'");
  expect(await mover().move()).toBe(3);
  expect(await rows("select message_id as id from sagabox.outbox order by seq")).toEqual([
    { id: "first" },
    { id: "second" },
    { id: "third" },
  ]);
});

test("concurrent movers move each message once", async () => {
  const { rows, write, mover } = await setup();
  await write(...Array.from({ length: 300 }, (_, n) => ({ message: { id: `s-${n}` }, delayMs: 1 })));
  await rows("update sagabox.scheduled set due_at = due_at - interval '1 minute'");
  let moved = 0;
  while (moved < 300) {
    const counts = await Promise.all([1, 2, 3, 4].map(() => mover(40).move()));
    moved += counts.reduce((sum, count) => sum + count, 0);
  }
  expect(moved).toBe(300);
  expect(
    await rows("select count(distinct message_id)::int as ids, count(*)::int as all from sagabox.outbox"),
  ).toEqual([{ ids: 300, all: 300 }]);
});

test("a message scheduled while the mover sleeps is found when it is woken", async () => {
  const { observer, write, mover } = await setup();
  const service = mover();
  await service.start();
  onTestFinished(() => service.stop());
  await write({ delayMs: 1 });
  service.wake();
  expect(await observer.until("scheduled.due")).toEqual([{ count: 1 }]);
});

test("a mover continues after a database failure", async () => {
  const { observer, rows, write, mover } = await setup();
  await rows("alter table sagabox.scheduled rename to elsewhere");
  const service = mover();
  await service.start();
  onTestFinished(() => service.stop());
  await observer.until("storage.failed");
  await rows("alter table sagabox.elsewhere rename to scheduled");
  await write({ delayMs: 1 });
  expect(await observer.until("scheduled.due")).toEqual([{ count: 1 }]);
});
