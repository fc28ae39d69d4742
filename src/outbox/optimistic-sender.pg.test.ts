import { expect, test } from "vitest";
import { aMessage } from "../../test/support/messages.ts";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { postgres } from "../transports/postgres/index.ts";

const hang = () => new Promise<void>(() => undefined);

test("A9, test_optimistic_send_success: sent by the process that wrote it, right after the commit", async () => {
  const harness = await relays();
  const { send } = harness.optimistic();
  await send(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await harness.observer.until("optimistic.succeeded");
  expect(harness.transport.ids).toEqual(["a", "b"]);
  expect(await harness.waiting()).toBe(0);
  expect(await harness.rows("select relay from sagabox.receipt")).toEqual([{ relay: "sender" }]);
  expect(harness.observer.of("outbox.written")).toEqual([{ count: 2, optimistic: 2 }]);
  expect(
    await harness.rows("select status, attempts from sagabox.outbox_events where event_id = 'a'"),
  ).toEqual([{ status: "sent", attempts: 0 }]);
});

test("A9, test_optimistic_send_timeout_fallback: a timeout leaves the message to the relay, without counting an attempt", async () => {
  const harness = await relays();
  harness.transport.before = hang;
  const released: number[] = [];
  const { send } = harness.optimistic({
    optimisticTimeout: 100,
    onReleased: (lanes) => released.push(...lanes),
  });
  const message = outgoing({ id: "a", key: "k" });
  await send(message);
  expect(await harness.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "timeout" }]);
  expect(released).toEqual([message.lane]);
  expect(await harness.rows("select attempts, lease_until from sagabox.outbox")).toEqual([
    { attempts: 0, lease_until: null },
  ]);
  harness.transport.before = () => Promise.resolve();
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["a"]);
});

test("A9, test_optimistic_disabled: with the flag off the broker is not called and nothing is leased", async () => {
  const harness = await relays();
  const { send, sender } = harness.optimistic({ optimistic: false });
  await send(outgoing({ id: "a" }));
  await sender.close();
  expect(harness.transport.calls).toEqual([]);
  expect(await harness.rows("select lease_until from sagabox.outbox")).toEqual([{ lease_until: null }]);
});

test.each(["rejected", "refused", "unreachable"] as const)(
  "test_optimistic_send_broker_error: %s leaves the message to the relay, counts no attempt, and the caller does not fail",
  async (answer) => {
    const harness = await relays();
    harness.transport.answer = ({ id }) => (id === "b" ? answer : "published");
    const { send } = harness.optimistic();
    await send(outgoing({ id: "a" }), outgoing({ id: "b" }));
    expect(await harness.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "error" }]);
    expect(await harness.rows("select message_id, attempts, lease_until from sagabox.outbox")).toEqual([
      { message_id: "b", attempts: 0, lease_until: null },
    ]);
    expect(await harness.rows("select 1 from sagabox.dead_letter")).toEqual([]);
  },
);

test("A8, A9, rule 9: no relay touches a leased row until the lease expires", async () => {
  const harness = await relays();
  harness.transport.before = hang;
  const { send } = harness.optimistic({ optimisticTimeout: 500 });
  harness.database.pauseBefore("sagabox.outbox.release_leased");
  await send(outgoing({ id: "a", key: "k" }));
  await until(() => harness.transport.calls.length === 1);
  harness.transport.before = () => Promise.resolve();
  await harness.relay({ database: harness.fresh() }).start();
  await harness.publish(outgoing({ id: "other", key: "o" }), outgoing({ id: "behind", key: "k" }));
  await until(() => harness.transport.ids.includes("other"));
  expect(harness.transport.ids).toEqual(["other"]);
  await harness.drained();
  expect(harness.transport.ids).toEqual(["other", "a", "behind"]);
});

test("rule 9: a message is not leased while an earlier one of its key is unsent", async () => {
  const harness = await relays();
  const { send } = harness.optimistic();
  await harness.publish(outgoing({ id: "first", key: "k" }));
  await send(outgoing({ id: "second", key: "k" }), outgoing({ id: "free", key: "o" }));
  await harness.observer.until("optimistic.succeeded");
  expect(harness.transport.ids).toEqual(["free"]);
  expect(await harness.rows("select message_id, lease_until from sagabox.outbox order by seq")).toEqual([
    { message_id: "first", lease_until: null },
    { message_id: "second", lease_until: null },
  ]);
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["free", "first", "second"]);
});

test("rule 9: nothing is leased under an older snapshot", async () => {
  const harness = await relays();
  const { scope } = harness.optimistic();
  const tx = await harness.database.begin({ isolation: "repeatable read" });
  await tx.query("select 1 from sagabox.outbox");
  await harness.publish(outgoing({ id: "first", key: "k" }));
  const own = scope(tx);
  await own.add(outgoing({ id: "second", key: "k" }));
  own.handleCommit(await tx.commit(own.lastStatements()));
  expect(await harness.rows("select 1 from sagabox.outbox where lease_until is not null")).toEqual([]);
});

test("rule 9: with less than half of the lease left a message is released", async () => {
  const harness = await relays();
  const { send } = harness.optimistic({ optimisticTimeout: 100 });
  harness.transport.before = hang;
  const gate = harness.database.pauseBefore("sagabox.outbox.release_leased");
  await send(outgoing({ id: "first" }));
  await send(outgoing({ id: "late" }));
  await gate.reached;
  await new Promise((resolve) => setTimeout(resolve, 360));
  harness.transport.before = () => Promise.resolve();
  gate.open();
  const failed = await harness.observer.until("optimistic.failed", 2);
  expect(failed.map(({ reason }) => reason)).toEqual(["timeout", "late"]);
  expect(harness.transport.calls).toHaveLength(1);
  expect(await harness.rows("select 1 from sagabox.outbox where lease_until is not null")).toEqual([]);
});

test("rule 9: the time to open the transport counts against the lease", async () => {
  const harness = await relays();
  harness.transport.open = hang;
  const { sender } = harness.optimistic({ optimisticTimeout: 400 });
  const { lane, stream } = outgoing({ id: "a" });
  const message = aMessage({ id: "a" });
  // 100 ms before half of the lease is over; the transport takes twice as long to open.
  sender.send([{ lane, stream, message, seq: 1 }], performance.now() - sender.leaseMs / 2 + 100);
  expect(await harness.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "late" }]);
  expect(harness.transport.calls).toEqual([]);
});

test("rule 9: fresh messages are sent before late ones are released", async () => {
  const harness = await relays();
  const { send } = harness.optimistic({ optimisticTimeout: 100 });
  harness.transport.before = hang;
  const gate = harness.database.pauseBefore("sagabox.outbox.release_leased");
  await send(outgoing({ id: "first" }));
  await send(outgoing({ id: "late" }));
  await gate.reached;
  await new Promise((resolve) => setTimeout(resolve, 360));
  harness.transport.before = () => Promise.resolve();
  await send(outgoing({ id: "fresh" }));
  const slow = harness.database.pauseBefore("sagabox.outbox.release_leased");
  gate.open();
  await slow.reached;
  expect(harness.transport.ids).toEqual(["fresh"]);
  slow.open();
  await harness.observer.until("optimistic.failed", 2);
});

test("A9, rule 9: a rolled-back transaction sends nothing; neither does one whose COMMIT failed", async () => {
  const harness = await relays();
  const { scope } = harness.optimistic();
  await harness.pool.query("create table once (id int primary key deferrable initially deferred)");
  const tx = await harness.database.begin();
  const own = scope(tx);
  await own.add(outgoing({ id: "a" }));
  await tx.query("insert into once values (1), (1)");
  await expect(tx.commit(own.lastStatements())).rejects.toMatchObject({ code: "23505" });
  expect([harness.transport.calls, await harness.waiting()]).toEqual([[], 0]);
});

test("rule 9: a failed settle leaves the row to the relay, which sends it again", async () => {
  const harness = await relays();
  const { send } = harness.optimistic({ optimisticTimeout: 100 });
  harness.database.failOnce("sagabox.outbox.sent_leased");
  await send(outgoing({ id: "a" }));
  await harness.observer.until("optimistic.failed");
  expect(await harness.waiting()).toBe(1);
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["a", "a"]);
});

test("rule 9: the local hop of the Postgres transport settles in one statement", async () => {
  const harness = await relays();
  const transport = postgres();
  const { database, observer } = harness;
  const hop = transport.attach({ database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer });
  await harness.pool.query(
    `insert into sagabox.consumer_group (name) values ('g'), ('h');
     insert into sagabox.subscription (topic, group_id) values ('events.order.placed', 1), ('events.order.placed', 2)`,
  );
  const { send } = harness.optimistic({ hop, transport });
  await send(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await observer.until("optimistic.succeeded");
  expect(await harness.waiting()).toBe(0);
  const queued = await harness.rows(
    "select lane / 256 as g, message_id from sagabox.queue order by lane, seq",
  );
  expect(queued).toEqual([
    { g: 1, message_id: "a" },
    { g: 1, message_id: "b" },
    { g: 2, message_id: "a" },
    { g: 2, message_id: "b" },
  ]);
  await transport.close();
});

test("relays are notified of a lane that also has an unleased message", async () => {
  const harness = await relays();
  const { scope, wakeUp } = harness.optimistic();
  const notified: number[] = [];
  wakeUp.notifyNow = (lanes) => void notified.push(...lanes);
  const one = outgoing({ id: "strict", key: "k", strict: true });
  let n = 0;
  while (outgoing({ key: `n${n}` }).lane !== one.lane) n += 1;
  const tx = await harness.database.begin();
  const own = scope(tx);
  await own.add(one);
  await own.add(outgoing({ id: "leased", key: `n${n}` }));
  own.handleCommit(await tx.commit(own.lastStatements()));
  expect(notified).toEqual([one.lane]);
  await harness.observer.until("optimistic.succeeded");
});

test("close() waits for messages in flight, accepts no new ones and closes the connection", async () => {
  const harness = await relays();
  const { send, sender } = harness.optimistic();
  await send(...Array.from({ length: 450 }, () => outgoing()));
  await sender.close();
  expect([harness.transport.ids.length, await harness.waiting(), sender.ready]).toEqual([450, 0, false]);
});

test("messages behind one that was left to the relay are not sent", async () => {
  const harness = await relays();
  harness.transport.answer = ({ id }) => (id === "m150" ? "rejected" : "published");
  const { send } = harness.optimistic();
  const all = Array.from({ length: 260 }, (_, n) => outgoing({ id: `m${n}`, key: "k" }));
  await send(...all);
  await harness.observer.until("optimistic.failed", 2);
  expect(harness.transport.ids).toEqual(all.slice(0, 150).map(({ message }) => message.id));
});

test("a publish after the COMMIT was sent is refused", async () => {
  const harness = await relays();
  const tx = await harness.database.begin();
  const scope = harness.optimistic().scope(tx);
  const forgotten = expect(scope.add(outgoing({ id: "late" }))).rejects.toMatchObject({
    code: "TRANSACTION_CLOSED",
  });
  scope.handleCommit(await tx.commit(scope.lastStatements()));
  await forgotten;
  expect(await harness.waiting()).toBe(0);
});
