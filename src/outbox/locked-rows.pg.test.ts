import { expect, test } from "vitest";
import { BLOCKED_BY_FOREIGN, lockRows } from "../../test/support/database.ts";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import { LANES } from "../lanes/index.ts";

const LOCK_ROW = "select 1 from sagabox.outbox where message_id = $1 for share";

const isNamed = ({ observer }: Relays): boolean =>
  observer.of("locks.blocked").some(({ blockedBy }) => BLOCKED_BY_FOREIGN.test(blockedBy));

test("a message with a locked row is sent once, and settled when the lock is gone", async () => {
  const harness = await relays();
  await harness.publish(outgoing({ id: "locked", key: "a" }), outgoing({ id: "free", key: "b" }));
  const { release } = await lockRows(harness.pool, LOCK_ROW, ["locked"]);
  const relay = harness.relay();
  await relay.start();
  await until(async () => (await harness.waiting()) === 1);
  await harness.publish(outgoing({ id: "next", key: "a" }), outgoing({ id: "other", key: "b" }));
  relay.sweepAll();
  await until(() => harness.transport.ids.includes("other"));
  await until(() => isNamed(harness));
  expect(harness.transport.ids).not.toContain("next");
  await release();
  await harness.drained();
  expect(harness.transport.ids.toSorted()).toEqual(["free", "locked", "next", "other"]);
  await until(() => harness.observer.of("relay.published").reduce((sum, { count }) => sum + count, 0) === 4);
  expect(harness.observer.of("relay.lost")).toEqual([]);
  expect(await harness.rows("select count(*)::int as n from sagabox.receipt, unnest(seqs)")).toEqual([
    { n: 4 },
  ]);
});

test("while the table is locked settling is retried, and the event names the blocker", async () => {
  const harness = await relays();
  await harness.publish(outgoing({ id: "m" }));
  const { release } = await lockRows(harness.pool, "lock table sagabox.outbox in share mode");
  await harness.relay().start();
  await until(() => isNamed(harness));
  expect(harness.observer.of("locks.blocked")[0]).toMatchObject({ count: 0 });
  await release();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["m"]);
});

test("a lane whose own row is locked holds back its messages and no others", async () => {
  const harness = await relays();
  const [locked, free] = [outgoing({ id: "locked", key: "a" }), outgoing({ id: "free", key: "b" })];
  expect(locked.lane).not.toBe(free.lane);
  const relay = harness.relay();
  await relay.start();
  await until(() => relay.ownedLanes === LANES);
  const lock = "select 1 from sagabox.relay_lane where lane = $1 for update";
  const { release } = await lockRows(harness.pool, lock, [locked.lane]);
  await harness.publish(locked, free);
  relay.sweepAll();
  await until(async () => (await harness.waiting()) === 1);
  expect(await harness.rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "locked" }]);
  await until(() => isNamed(harness));
  await release();
  await harness.drained();
  expect(harness.transport.ids.toSorted()).toEqual(["free", "locked"]);
});

test("a relay whose own member row is locked for longer than its lease continues under a new one", async () => {
  const harness = await relays();
  const relay = harness.relay({ leaseMs: 1_000 });
  await relay.start();
  await until(() => relay.ownedLanes === LANES);
  await lockRows(harness.pool, "select 1 from sagabox.member for update");
  await harness.observer.until("lanes.lost");
  await until(() => relay.ownedLanes === LANES);
  await harness.publish(outgoing({ id: "m" }));
  relay.sweepAll();
  await harness.drained();
  expect(harness.observer.of("storage.failed").some(({ error }) => error.includes("lock timeout"))).toBe(
    true,
  );
});

test("lanes with a locked row are handed over, and a relay stops although a row is locked", async () => {
  const harness = await relays();
  await harness.publish(outgoing({ id: "locked", key: "a" }));
  await lockRows(harness.pool, LOCK_ROW, ["locked"]);
  const first = harness.relay({ worker: "first" });
  await first.start();
  await until(() => isNamed(harness));
  const second = harness.relay({ worker: "second" });
  await second.start();
  await until(() => first.ownedLanes === LANES / 2 && second.ownedLanes === LANES / 2);
  await Promise.all([first.stop(), second.stop()]);
  expect(await harness.rows("select 1 from sagabox.relay_lane where owner is not null")).toEqual([]);
});

test("a rejected message with a locked row is dead-lettered when the lock is gone, and counts no attempt before", async () => {
  const harness = await relays();
  harness.transport.answer = ({ id }) => (id === "rejected" ? "rejected" : "published");
  await harness.publish(
    outgoing({ id: "rejected", key: "a", maxAttempts: 1 }),
    outgoing({ id: "behind", key: "a" }),
  );
  const { release } = await lockRows(harness.pool, LOCK_ROW, ["rejected"]);
  const relay = harness.relay();
  await relay.start();
  await until(() => harness.transport.calls.length > 1);
  await harness.publish(outgoing({ id: "other", key: "b" }));
  relay.sweepAll();
  await until(() => harness.transport.ids.includes("other"));
  expect(await harness.rows("select attempts from sagabox.outbox where message_id = 'rejected'")).toEqual([
    { attempts: 0 },
  ]);
  await release();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["other", "behind"]);
  expect(await harness.rows("select message_id, attempts from sagabox.dead_letter")).toMatchObject([
    { message_id: "rejected" },
  ]);
});

test("an optimistic message with a locked row holds back only its key", async () => {
  const harness = await relays();
  const { send, sender } = harness.optimistic({ optimisticTimeout: 2_000 });
  const gate = harness.database.pauseBefore("sagabox.outbox.sent_leased");
  await send(outgoing({ id: "locked", key: "a" }), outgoing({ id: "free", key: "b" }));
  await gate.reached;
  const { release } = await lockRows(harness.pool, LOCK_ROW, ["locked"]);
  gate.open();
  await until(async () => (await harness.waiting()) === 1);
  await send(outgoing({ id: "third", key: "c" }));
  await until(() => harness.transport.ids.includes("third"));
  await release();
  await sender.close();
  await harness.relay().start();
  await harness.drained();
  expect([...new Set(harness.transport.ids)].toSorted()).toEqual(["free", "locked", "third"]);
});
