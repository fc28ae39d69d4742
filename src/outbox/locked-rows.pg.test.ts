import { expect, test } from "vitest";
import { BLOCKED_BY_FOREIGN, lockRows } from "../../test/support/foreign-locks.ts";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import { LANES } from "../lanes/index.ts";

const LOCK_ROW = "select 1 from sagabox.outbox where message_id = $1 for share";

const isNamed = ({ observer }: Relays): boolean =>
  observer.of("locks.blocked").some(({ blockedBy }) => BLOCKED_BY_FOREIGN.test(blockedBy));

test("a message whose row is locked when it was sent is sent once, and settled when the lock is gone", async () => {
  const house = await relays();
  await house.publish(outgoing({ id: "locked", key: "a" }), outgoing({ id: "free", key: "b" }));
  const { release } = await lockRows(house.pool, LOCK_ROW, ["locked"]);
  const relay = house.relay();
  await relay.start();
  await until(async () => (await house.waiting()) === 1);
  await house.publish(outgoing({ id: "next", key: "a" }), outgoing({ id: "other", key: "b" }));
  relay.sweepAll();
  await until(() => house.transport.ids.includes("other"));
  await until(() => isNamed(house));
  expect(house.transport.ids).not.toContain("next");
  await release();
  await house.drained();
  expect(house.transport.ids.toSorted()).toEqual(["free", "locked", "next", "other"]);
  await until(() => house.observer.of("relay.published").reduce((sum, { count }) => sum + count, 0) === 4);
  expect(house.observer.of("relay.lost")).toEqual([]);
  expect(await house.rows("select count(*)::int as n from sagabox.receipt, unnest(seqs)")).toEqual([
    { n: 4 },
  ]);
});

test("while a whole table is locked settling is tried again, and the log says by whom", async () => {
  const house = await relays();
  await house.publish(outgoing({ id: "m" }));
  const { release } = await lockRows(house.pool, "lock table sagabox.outbox in share mode");
  await house.relay().start();
  await until(() => isNamed(house));
  expect(house.observer.of("locks.blocked")[0]).toMatchObject({ count: 0 });
  await release();
  await house.drained();
  expect(house.transport.ids).toEqual(["m"]);
});

test("a lane whose own row is locked holds back its messages and no others", async () => {
  const house = await relays();
  const [locked, free] = [outgoing({ id: "locked", key: "a" }), outgoing({ id: "free", key: "b" })];
  expect(locked.lane).not.toBe(free.lane);
  const relay = house.relay();
  await relay.start();
  await until(() => relay.ownedLanes === LANES);
  const lock = "select 1 from sagabox.relay_lane where lane = $1 for update";
  const { release } = await lockRows(house.pool, lock, [locked.lane]);
  await house.publish(locked, free);
  relay.sweepAll();
  await until(async () => (await house.waiting()) === 1);
  expect(await house.rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "locked" }]);
  await until(() => isNamed(house));
  await release();
  await house.drained();
  expect(house.transport.ids.toSorted()).toEqual(["free", "locked"]);
});

test("a relay whose own member row is locked for longer than its lease continues under a new one", async () => {
  const house = await relays();
  const relay = house.relay({ leaseMs: 1_000 });
  await relay.start();
  await until(() => relay.ownedLanes === LANES);
  await lockRows(house.pool, "select 1 from sagabox.member for update");
  await house.observer.until("lanes.lost");
  await until(() => relay.ownedLanes === LANES);
  await house.publish(outgoing({ id: "m" }));
  relay.sweepAll();
  await house.drained();
  expect(house.observer.of("storage.failed").some(({ error }) => error.includes("lock timeout"))).toBe(true);
});

test("lanes with a locked row are handed over, and a relay stops although a row is locked", async () => {
  const house = await relays();
  await house.publish(outgoing({ id: "locked", key: "a" }));
  await lockRows(house.pool, LOCK_ROW, ["locked"]);
  const first = house.relay({ worker: "first" });
  await first.start();
  await until(() => isNamed(house));
  const second = house.relay({ worker: "second" });
  await second.start();
  await until(() => first.ownedLanes === LANES / 2 && second.ownedLanes === LANES / 2);
  await Promise.all([first.stop(), second.stop()]);
  expect(await house.rows("select 1 from sagabox.relay_lane where owner is not null")).toEqual([]);
});

test("a rejected message whose row is locked dies when the lock is gone, and counts no attempt before", async () => {
  const house = await relays();
  house.transport.answer = ({ id }) => (id === "rejected" ? "rejected" : "published");
  await house.publish(
    outgoing({ id: "rejected", key: "a", maxAttempts: 1 }),
    outgoing({ id: "behind", key: "a" }),
  );
  const { release } = await lockRows(house.pool, LOCK_ROW, ["rejected"]);
  const relay = house.relay();
  await relay.start();
  await until(() => house.transport.calls.length > 1);
  await house.publish(outgoing({ id: "other", key: "b" }));
  relay.sweepAll();
  await until(() => house.transport.ids.includes("other"));
  expect(await house.rows("select attempts from sagabox.outbox where message_id = 'rejected'")).toEqual([
    { attempts: 0 },
  ]);
  await release();
  await house.drained();
  expect(house.transport.ids).toEqual(["other", "behind"]);
  expect(await house.rows("select message_id, attempts from sagabox.dead_letter")).toMatchObject([
    { message_id: "rejected" },
  ]);
});

test("a message that is sent right after its commit, and whose row is locked, holds back only its key", async () => {
  const house = await relays();
  const { send, sender } = house.optimistic({ optimisticTimeout: 2_000 });
  const gate = house.database.pauseBefore("sagabox.outbox.sent_leased");
  await send(outgoing({ id: "locked", key: "a" }), outgoing({ id: "free", key: "b" }));
  await gate.reached;
  const { release } = await lockRows(house.pool, LOCK_ROW, ["locked"]);
  gate.open();
  await until(async () => (await house.waiting()) === 1);
  await send(outgoing({ id: "third", key: "c" }));
  await until(() => house.transport.ids.includes("third"));
  await release();
  await sender.close();
  await house.relay().start();
  await house.drained();
  expect([...new Set(house.transport.ids)].toSorted()).toEqual(["free", "locked", "third"]);
});
