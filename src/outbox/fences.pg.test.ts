import { expect, test } from "vitest";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import type { PollingRelay } from "./index.ts";

const TAKE_OVER = "update sagabox.relay_lane set owner = 'other', fence = fence + 1, token = 'another token'";

const bothWays = test.for(["by name", "in place"] as const);
type Way = "by name" | "in place";
const STATEMENTS = { "by name": "sagabox.outbox.sent", "in place": "sagabox.outbox.sent_in_place" };

/** A relay whose next settle goes this way: what it read before its session for settling was open goes by name. */
async function relayThatSettles(house: Relays, way: Way): Promise<PollingRelay> {
  await house.pool.query(
    "insert into sagabox.member (id, scope, worker, lease_until) values ('other', 9, 'other', 'infinity')",
  );
  const relay = house.relay();
  await relay.start();
  if (way === "by name") return relay;
  await house.publish(outgoing({ id: "before" }));
  relay.sweepAll();
  await house.observer.until("relay.batch");
  return relay;
}

/** A relay that has sent one message and not settled it yet. */
async function sentNotSettled(house: Relays, way: Way) {
  const relay = await relayThatSettles(house, way);
  const gate = house.database.pauseBefore(STATEMENTS[way]);
  await house.publish(outgoing({ id: "a", key: "k" }));
  relay.sweepAll();
  await gate.reached;
  return gate;
}

bothWays(
  "A8, rule 2: a settle whose lane was taken over deletes nothing, and its relay lets the lane go (%s)",
  async (way) => {
    const house = await relays();
    const gate = await sentNotSettled(house, way);
    const receipts = await house.rows("select 1 from sagabox.receipt");
    await house.pool.query(TAKE_OVER);
    gate.open();
    expect(await house.observer.until("relay.lost")).toMatchObject([{ count: 1 }]);
    expect(await house.rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "a" }]);
    expect(await house.rows("select 1 from sagabox.receipt")).toEqual(receipts);
    expect(house.observer.of("lanes.lost")[0]).toMatchObject({ lanes: 1 });
  },
);

bothWays("A8, rule 2: the same number under another token is another claim (%s)", async (way) => {
  const house = await relays();
  const gate = await sentNotSettled(house, way);
  await house.pool.query("update sagabox.relay_lane set owner = 'other', token = 'another token'");
  gate.open();
  await house.observer.until("relay.lost");
  expect(await house.waiting()).toBe(1);
});

bothWays(
  "A8, rule 2: a settle that a take-over gets ahead of waits for it, then finds that it has lost (%s)",
  async (way) => {
    const house = await relays();
    const gate = await sentNotSettled(house, way);
    const taking = await house.pool.connect();
    await taking.query(`begin; ${TAKE_OVER}`);
    gate.open();
    await until(async () => (await house.rows("select 1 from pg_locks where not granted")).length > 0);
    await taking.query("commit");
    taking.release();
    await house.observer.until("relay.lost");
    expect(await house.waiting()).toBe(1);
  },
);

test("A6, rule 2: a take-over passes over the lane that is just being settled", async () => {
  const house = await relays();
  const settling = await house.pool.connect();
  await settling.query("begin; select 1 from sagabox.relay_lane where lane = 7 for update");
  const relay = house.relay({ leaseMs: 1_000 });
  await relay.start();
  await until(() => relay.ownedLanes > 0);
  expect(relay.ownedLanes).toBe(255);
  await settling.query("commit");
  settling.release();
  await until(() => relay.ownedLanes === 256);
});

bothWays("rule 2: what one lost lane held back is settled all the same on the others (%s)", async (way) => {
  const house = await relays();
  const [lost, kept] = [outgoing({ id: "lost", key: "k1" }), outgoing({ id: "kept", key: "k2" })];
  expect(lost.lane).not.toBe(kept.lane);
  const relay = await relayThatSettles(house, way);
  const gate = house.database.pauseBefore(STATEMENTS[way]);
  await house.publish(lost, kept);
  relay.sweepAll();
  await gate.reached;
  await house.pool.query(`${TAKE_OVER} where lane = ${lost.lane}`);
  gate.open();
  await house.observer.until("relay.lost");
  expect(await house.rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "lost" }]);
});

bothWays(
  "rule 2: when the answer to a settle is lost it is settled again, and nothing is sent twice (%s)",
  async (way) => {
    const house = await relays();
    const relay = await relayThatSettles(house, way);
    const settled = house.observer.of("relay.batch").length;
    house.database.loseReply(STATEMENTS[way]);
    await house.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
    relay.sweepAll();
    await until(() => house.observer.of("relay.batch").length > settled);
    expect(house.observer.of("storage.failed")).toMatchObject([{ doing: "settling a batch" }]);
    expect(await house.waiting()).toBe(0);
    await house.publish(outgoing({ id: "c", key: "k" }));
    await house.drained();
    expect(house.transport.ids.filter((id) => id !== "before")).toEqual(["a", "b", "c"]);
    expect(house.observer.of("relay.lost")).toEqual([]);
  },
);

test("rule 2: when the answer to a lease is lost the lanes are found again, not left ownerless for ever", async () => {
  const house = await relays();
  house.database.loseReply("sagabox.lanes.acquire");
  await house.publish(outgoing({ id: "a" }));
  const relay = house.relay({ leaseMs: 2_000 });
  await relay.start();
  await until(() => relay.ownedLanes === 256);
  await house.drained();
  expect(house.observer.of("storage.failed")).toHaveLength(1);
});

test("A8, rule 2: a failure noted under a lost claim charges nothing", async () => {
  const house = await relays();
  house.transport.answer = () => "rejected";
  const gate = house.database.pauseBefore("sagabox.outbox.failed");
  await house.publish(outgoing({ id: "a", key: "k" }));
  await house.relay().start();
  await gate.reached;
  await house.pool.query(
    "insert into sagabox.member (id, scope, worker, lease_until) values ('other', 0, 'other', 'infinity')",
  );
  await house.pool.query(TAKE_OVER);
  gate.open();
  await house.observer.until("lanes.lost");
  expect(await house.rows("select attempts, last_error from sagabox.outbox")).toEqual([
    { attempts: 0, last_error: null },
  ]);
});
