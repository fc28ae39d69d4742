import { expect, test } from "vitest";
import { outgoing, relays, until, type Relays } from "../../test/support/relays.ts";
import type { PollingRelay } from "./index.ts";

const TAKE_OVER = "update sagabox.relay_lane set owner = 'other', fence = fence + 1, token = 'another token'";

const testBoth = test.for(["by name", "in place"] as const);
type Method = "by name" | "in place";
const STATEMENTS = { "by name": "sagabox.outbox.sent", "in place": "sagabox.outbox.sent_in_place" };

/**
 * A relay whose next settle uses this method: rows read before its settle session was open are settled by
 * name.
 */
async function relayThatSettles(harness: Relays, method: Method): Promise<PollingRelay> {
  await harness.pool.query(
    "insert into sagabox.member (id, scope, worker, lease_until) values ('other', 9, 'other', 'infinity')",
  );
  const relay = harness.relay();
  await relay.start();
  if (method === "by name") return relay;
  await harness.publish(outgoing({ id: "before" }));
  relay.sweepAll();
  await harness.observer.until("relay.batch");
  return relay;
}

/** A relay that has sent one message and not settled it yet. */
async function sentNotSettled(harness: Relays, method: Method) {
  const relay = await relayThatSettles(harness, method);
  const gate = harness.database.pauseBefore(STATEMENTS[method]);
  await harness.publish(outgoing({ id: "a", key: "k" }));
  relay.sweepAll();
  await gate.reached;
  return gate;
}

testBoth(
  "A8, rule 2: a settle whose lane was taken over deletes nothing, and its relay drops the lane (%s)",
  async (method) => {
    const harness = await relays();
    const gate = await sentNotSettled(harness, method);
    const receipts = await harness.rows("select 1 from sagabox.receipt");
    await harness.pool.query(TAKE_OVER);
    gate.open();
    expect(await harness.observer.until("relay.lost")).toMatchObject([{ count: 1 }]);
    expect(await harness.rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "a" }]);
    expect(await harness.rows("select 1 from sagabox.receipt")).toEqual(receipts);
    expect(harness.observer.of("lanes.lost")[0]).toMatchObject({ lanes: 1 });
  },
);

testBoth("A8, rule 2: the same number under another token is another claim (%s)", async (method) => {
  const harness = await relays();
  const gate = await sentNotSettled(harness, method);
  await harness.pool.query("update sagabox.relay_lane set owner = 'other', token = 'another token'");
  gate.open();
  await harness.observer.until("relay.lost");
  expect(await harness.waiting()).toBe(1);
});

testBoth(
  "A8, rule 2: a settle waits for a concurrent take-over and then does nothing (%s)",
  async (method) => {
    const harness = await relays();
    const gate = await sentNotSettled(harness, method);
    const taking = await harness.pool.connect();
    await taking.query(`begin; ${TAKE_OVER}`);
    gate.open();
    await until(async () => (await harness.rows("select 1 from pg_locks where not granted")).length > 0);
    await taking.query("commit");
    taking.release();
    await harness.observer.until("relay.lost");
    expect(await harness.waiting()).toBe(1);
  },
);

test("A6, rule 2: a take-over skips a lane that is being settled", async () => {
  const harness = await relays();
  const settling = await harness.pool.connect();
  await settling.query("begin; select 1 from sagabox.relay_lane where lane = 7 for update");
  const relay = harness.relay({ leaseMs: 1_000 });
  await relay.start();
  await until(() => relay.ownedLanes > 0);
  expect(relay.ownedLanes).toBe(255);
  await settling.query("commit");
  settling.release();
  await until(() => relay.ownedLanes === 256);
});

testBoth("rule 2: rows of other lanes are settled when one lane is lost (%s)", async (method) => {
  const harness = await relays();
  const [lost, kept] = [outgoing({ id: "lost", key: "k1" }), outgoing({ id: "kept", key: "k2" })];
  expect(lost.lane).not.toBe(kept.lane);
  const relay = await relayThatSettles(harness, method);
  const gate = harness.database.pauseBefore(STATEMENTS[method]);
  await harness.publish(lost, kept);
  relay.sweepAll();
  await gate.reached;
  await harness.pool.query(`${TAKE_OVER} where lane = ${lost.lane}`);
  gate.open();
  await harness.observer.until("relay.lost");
  expect(await harness.rows("select message_id from sagabox.outbox")).toEqual([{ message_id: "lost" }]);
});

testBoth(
  "rule 2: a settle is repeated when its reply is lost, and nothing is sent twice (%s)",
  async (method) => {
    const harness = await relays();
    const relay = await relayThatSettles(harness, method);
    const settled = harness.observer.of("relay.batch").length;
    harness.database.loseReply(STATEMENTS[method]);
    await harness.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
    relay.sweepAll();
    await until(() => harness.observer.of("relay.batch").length > settled);
    expect(harness.observer.of("storage.failed")).toMatchObject([{ doing: "settling a batch" }]);
    expect(await harness.waiting()).toBe(0);
    await harness.publish(outgoing({ id: "c", key: "k" }));
    await harness.drained();
    expect(harness.transport.ids.filter((id) => id !== "before")).toEqual(["a", "b", "c"]);
    expect(harness.observer.of("relay.lost")).toEqual([]);
  },
);

test("rule 2: lanes are acquired again when the reply to a lease is lost", async () => {
  const harness = await relays();
  harness.database.loseReply("sagabox.lanes.acquire");
  await harness.publish(outgoing({ id: "a" }));
  const relay = harness.relay({ leaseMs: 2_000 });
  await relay.start();
  await until(() => relay.ownedLanes === 256);
  await harness.drained();
  expect(harness.observer.of("storage.failed")).toHaveLength(1);
});

test("A8, rule 2: a failure recorded under a lost claim counts no attempt", async () => {
  const harness = await relays();
  harness.transport.answer = () => "rejected";
  const gate = harness.database.pauseBefore("sagabox.outbox.failed");
  await harness.publish(outgoing({ id: "a", key: "k" }));
  await harness.relay().start();
  await gate.reached;
  await harness.pool.query(
    "insert into sagabox.member (id, scope, worker, lease_until) values ('other', 0, 'other', 'infinity')",
  );
  await harness.pool.query(TAKE_OVER);
  gate.open();
  await harness.observer.until("lanes.lost");
  expect(await harness.rows("select attempts, last_error from sagabox.outbox")).toEqual([
    { attempts: 0, last_error: null },
  ]);
});
