import { expect, test } from "vitest";
import { aMessage } from "../../test/support/messages.ts";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { postgres } from "../transports/postgres/index.ts";

const hang = () => new Promise<void>(() => undefined);

test("A9, test_optimistic_send_success: sent by the process that wrote it, right after the commit", async () => {
  const house = await relays();
  const { send } = house.optimistic();
  await send(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await house.observer.until("optimistic.succeeded");
  expect(house.transport.ids).toEqual(["a", "b"]);
  expect(await house.waiting()).toBe(0);
  expect(await house.rows("select relay from sagabox.receipt")).toEqual([{ relay: "sender" }]);
  expect(house.observer.of("outbox.written")).toEqual([{ count: 2, optimistic: 2 }]);
  expect(await house.rows("select status, attempts from sagabox.outbox_events where event_id = 'a'")).toEqual(
    [{ status: "sent", attempts: 0 }],
  );
});

test("A9, test_optimistic_send_timeout_fallback: no answer in time gives it to the relay, uncharged", async () => {
  const house = await relays();
  house.transport.before = hang;
  const released: number[] = [];
  const { send } = house.optimistic({
    optimisticTimeout: 100,
    onReleased: (lanes) => released.push(...lanes),
  });
  const message = outgoing({ id: "a", key: "k" });
  await send(message);
  expect(await house.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "timeout" }]);
  expect(released).toEqual([message.lane]);
  expect(await house.rows("select attempts, lease_until from sagabox.outbox")).toEqual([
    { attempts: 0, lease_until: null },
  ]);
  house.transport.before = () => Promise.resolve();
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids).toEqual(["a"]);
});

test("A9, test_optimistic_disabled: with the flag off the broker is not called and nothing is leased", async () => {
  const house = await relays();
  const { send, sender } = house.optimistic({ optimistic: false });
  await send(outgoing({ id: "a" }));
  await sender.close();
  expect(house.transport.calls).toEqual([]);
  expect(await house.rows("select lease_until from sagabox.outbox")).toEqual([{ lease_until: null }]);
});

test.each(["rejected", "refused", "unreachable"] as const)(
  "test_optimistic_send_broker_error: %s gives it to the relay, uncharged, and the caller hears nothing",
  async (answer) => {
    const house = await relays();
    house.transport.answer = ({ id }) => (id === "b" ? answer : "published");
    const { send } = house.optimistic();
    await send(outgoing({ id: "a" }), outgoing({ id: "b" }));
    expect(await house.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "error" }]);
    expect(await house.rows("select message_id, attempts, lease_until from sagabox.outbox")).toEqual([
      { message_id: "b", attempts: 0, lease_until: null },
    ]);
    expect(await house.rows("select 1 from sagabox.dead_letter")).toEqual([]);
  },
);

test("A8, A9, rule 9: while the lease runs no relay touches the row; when its writer has died, one does", async () => {
  const house = await relays();
  house.transport.before = hang;
  const { send } = house.optimistic({ optimisticTimeout: 500 });
  house.database.pauseBefore("sagabox.outbox.release_leased");
  await send(outgoing({ id: "a", key: "k" }));
  await until(() => house.transport.calls.length === 1);
  house.transport.before = () => Promise.resolve();
  await house.relay({ database: house.fresh() }).start();
  await house.publish(outgoing({ id: "other", key: "o" }), outgoing({ id: "behind", key: "k" }));
  await until(() => house.transport.ids.includes("other"));
  expect(house.transport.ids).toEqual(["other"]);
  await house.drained();
  expect(house.transport.ids).toEqual(["other", "a", "behind"]);
});

test("rule 9: it is not leased while something earlier of its key is unsent, so it cannot overtake", async () => {
  const house = await relays();
  const { send } = house.optimistic();
  await house.publish(outgoing({ id: "first", key: "k" }));
  await send(outgoing({ id: "second", key: "k" }), outgoing({ id: "free", key: "o" }));
  await house.observer.until("optimistic.succeeded");
  expect(house.transport.ids).toEqual(["free"]);
  expect(await house.rows("select message_id, lease_until from sagabox.outbox order by seq")).toEqual([
    { message_id: "first", lease_until: null },
    { message_id: "second", lease_until: null },
  ]);
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids).toEqual(["free", "first", "second"]);
});

test("rule 9: an older snapshot must not decide that nothing earlier exists", async () => {
  const house = await relays();
  const { scope } = house.optimistic();
  const tx = await house.database.begin({ isolation: "repeatable read" });
  await tx.query("select 1 from sagabox.outbox");
  await house.publish(outgoing({ id: "first", key: "k" }));
  const own = scope(tx);
  await own.add(outgoing({ id: "second", key: "k" }));
  own.handleCommit(await tx.commit(own.lastStatements()));
  expect(await house.rows("select 1 from sagabox.outbox where lease_until is not null")).toEqual([]);
});

test("rule 9: with less than half of the lease left it is not sent but released", async () => {
  const house = await relays();
  const { send } = house.optimistic({ optimisticTimeout: 100 });
  house.transport.before = hang;
  const gate = house.database.pauseBefore("sagabox.outbox.release_leased");
  await send(outgoing({ id: "first" }));
  await send(outgoing({ id: "late" }));
  await gate.reached;
  await new Promise((resolve) => setTimeout(resolve, 360));
  house.transport.before = () => Promise.resolve();
  gate.open();
  const failed = await house.observer.until("optimistic.failed", 2);
  expect(failed.map(({ reason }) => reason)).toEqual(["timeout", "late"]);
  expect(house.transport.calls).toHaveLength(1);
  expect(await house.rows("select 1 from sagabox.outbox where lease_until is not null")).toEqual([]);
});

test("rule 9: the time a transport takes to open counts: what was fresh before and is late after is not sent", async () => {
  const house = await relays();
  house.transport.open = hang;
  const { sender } = house.optimistic({ optimisticTimeout: 400 });
  const { lane, stream } = outgoing({ id: "a" });
  const message = aMessage({ id: "a" });
  // 100 ms before its half is over; the transport is waited for twice as long.
  sender.send([{ lane, stream, message, seq: 1 }], performance.now() - sender.leaseMs / 2 + 100);
  expect(await house.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "late" }]);
  expect(house.transport.calls).toEqual([]);
});

test("rule 9: what is still fresh goes out before the late ones are given back, not after", async () => {
  const house = await relays();
  const { send } = house.optimistic({ optimisticTimeout: 100 });
  house.transport.before = hang;
  const gate = house.database.pauseBefore("sagabox.outbox.release_leased");
  await send(outgoing({ id: "first" }));
  await send(outgoing({ id: "late" }));
  await gate.reached;
  await new Promise((resolve) => setTimeout(resolve, 360));
  house.transport.before = () => Promise.resolve();
  await send(outgoing({ id: "fresh" }));
  const slow = house.database.pauseBefore("sagabox.outbox.release_leased");
  gate.open();
  await slow.reached;
  expect(house.transport.ids).toEqual(["fresh"]);
  slow.open();
  await house.observer.until("optimistic.failed", 2);
});

test("A9, rule 9: a rolled-back transaction sends nothing; neither does one whose COMMIT failed", async () => {
  const house = await relays();
  const { scope } = house.optimistic();
  await house.pool.query("create table once (id int primary key deferrable initially deferred)");
  const tx = await house.database.begin();
  const own = scope(tx);
  await own.add(outgoing({ id: "a" }));
  await tx.query("insert into once values (1), (1)");
  await expect(tx.commit(own.lastStatements())).rejects.toMatchObject({ code: "23505" });
  expect([house.transport.calls, await house.waiting()]).toEqual([[], 0]);
});

test("rule 9: an answer to the settle that is lost leaves the row to the relay: sent again, never lost", async () => {
  const house = await relays();
  const { send } = house.optimistic({ optimisticTimeout: 100 });
  house.database.failOnce("sagabox.outbox.sent_leased");
  await send(outgoing({ id: "a" }));
  await house.observer.until("optimistic.failed");
  expect(await house.waiting()).toBe(1);
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids).toEqual(["a", "a"]);
});

test("rule 9: the hop of the Postgres transport works the same way, in one statement", async () => {
  const house = await relays();
  const transport = postgres();
  const { database, observer } = house;
  const hop = transport.attach({ database, schema: "sagabox", channel: "c", leaseMs: 5_000, observer });
  await house.pool.query(
    `insert into sagabox.consumer_group (name) values ('g'), ('h');
     insert into sagabox.subscription (topic, group_id) values ('events.order.placed', 1), ('events.order.placed', 2)`,
  );
  const { send } = house.optimistic({ hop, transport });
  await send(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await observer.until("optimistic.succeeded");
  expect(await house.waiting()).toBe(0);
  const queued = await house.rows("select lane / 256 as g, message_id from sagabox.queue order by lane, seq");
  expect(queued).toEqual([
    { g: 1, message_id: "a" },
    { g: 1, message_id: "b" },
    { g: 2, message_id: "a" },
    { g: 2, message_id: "b" },
  ]);
  await transport.close();
});

test("a lane that also has an unleased message of the same transaction is told to the relays", async () => {
  const house = await relays();
  const { scope, wakeUp } = house.optimistic();
  const told: number[] = [];
  wakeUp.notifyNow = (lanes) => void told.push(...lanes);
  const one = outgoing({ id: "strict", key: "k", strict: true });
  let n = 0;
  while (outgoing({ key: `n${n}` }).lane !== one.lane) n += 1;
  const tx = await house.database.begin();
  const own = scope(tx);
  await own.add(one);
  await own.add(outgoing({ id: "leased", key: `n${n}` }));
  own.handleCommit(await tx.commit(own.lastStatements()));
  expect(told).toEqual([one.lane]);
  await house.observer.until("optimistic.succeeded");
});

test("closing sends what was begun, takes nothing new, and leaves no connection", async () => {
  const house = await relays();
  const { send, sender } = house.optimistic();
  await send(...Array.from({ length: 450 }, () => outgoing()));
  await sender.close();
  expect([house.transport.ids.length, await house.waiting(), sender.ready]).toEqual([450, 0, false]);
});

test("what was leased behind a message that went back to the relay is not sent, however many there are", async () => {
  const house = await relays();
  house.transport.answer = ({ id }) => (id === "m150" ? "rejected" : "published");
  const { send } = house.optimistic();
  const all = Array.from({ length: 260 }, (_, n) => outgoing({ id: `m${n}`, key: "k" }));
  await send(...all);
  await house.observer.until("optimistic.failed", 2);
  expect(house.transport.ids).toEqual(all.slice(0, 150).map(({ message }) => message.id));
});

test("a publish that nobody awaited is refused once the COMMIT is on its way, not swallowed", async () => {
  const house = await relays();
  const tx = await house.database.begin();
  const scope = house.optimistic().scope(tx);
  const forgotten = expect(scope.add(outgoing({ id: "late" }))).rejects.toMatchObject({
    code: "TRANSACTION_CLOSED",
  });
  scope.handleCommit(await tx.commit(scope.lastStatements()));
  await forgotten;
  expect(await house.waiting()).toBe(0);
});
