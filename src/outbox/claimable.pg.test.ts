import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";

test("A8, rule 1: new, failed and due, and with its writer's lease run out: one read finds them all", async () => {
  const house = await relays();
  await house.publish(outgoing({ id: "new" }), outgoing({ id: "failed" }), outgoing({ id: "crashed" }));
  await house.tamper(
    `update sagabox.outbox set attempts = 3, due_at = clock_timestamp() - interval '1 s' where message_id = 'failed';
     update sagabox.outbox set lease_until = clock_timestamp() - interval '1 s' where message_id = 'crashed'`,
  );
  await house.relay().start();
  await house.drained();
  expect(house.transport.calls.map((call) => call.map(({ id }) => id).toSorted())).toEqual([
    ["crashed", "failed", "new"],
  ]);
  expect(house.database.count("sagabox.outbox.reenter")).toBe(0);
});

test("A8, rule 1: what is leased or not due yet is left alone, until the database clock says otherwise", async () => {
  const house = await relays();
  await house.publish(outgoing({ id: "leased" }), outgoing({ id: "later" }), outgoing({ id: "now" }));
  await house.tamper(
    `update sagabox.outbox set lease_until = clock_timestamp() + interval '700 ms' where message_id = 'leased';
     update sagabox.outbox set attempts = 1, due_at = clock_timestamp() + interval '700 ms' where message_id = 'later'`,
  );
  await house.relay().start();
  await until(() => house.transport.ids.length > 0);
  expect(house.transport.ids).toEqual(["now"]);
  await house.drained();
  expect(house.transport.ids.toSorted()).toEqual(["later", "leased", "now"]);
});

test("A8, rule 1: rows of a relay that died are found by the next one, with nobody resetting anything", async () => {
  const house = await relays();
  house.transport.before = () => new Promise(() => undefined);
  await house.publish(outgoing({ id: "a" }));
  const dead = house.relay({ worker: "dead", leaseMs: 1_000, publishTimeout: 100 });
  await dead.start();
  await until(() => house.transport.calls.length === 1);
  house.database.silence();
  house.transport.before = () => Promise.resolve();
  const { rows } = await house.pool.query("select count(*)::int as n from sagabox.member");
  expect(rows).toEqual([{ n: 1 }]);
  await house.relay({ worker: "alive", database: house.fresh() }).start();
  await house.drained();
  expect(house.transport.ids).toEqual(["a"]);
  expect(await house.rows("select relay from sagabox.receipt")).toEqual([{ relay: "alive" }]);
  house.database.speak();
});
