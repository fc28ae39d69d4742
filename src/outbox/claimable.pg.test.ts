import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";

test("A8, rule 1: one read finds new rows, failed rows that are due, and rows with an expired lease", async () => {
  const harness = await relays();
  await harness.publish(outgoing({ id: "new" }), outgoing({ id: "failed" }), outgoing({ id: "crashed" }));
  await harness.tamper(
    `update sagabox.outbox set attempts = 3, due_at = clock_timestamp() - interval '1 s' where message_id = 'failed';
     update sagabox.outbox set lease_until = clock_timestamp() - interval '1 s' where message_id = 'crashed'`,
  );
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.calls.map((call) => call.map(({ id }) => id).toSorted())).toEqual([
    ["crashed", "failed", "new"],
  ]);
  expect(harness.database.count("sagabox.outbox.reenter")).toBe(0);
});

test("A8, rule 1: leased and future rows are left alone until the database clock says otherwise", async () => {
  const harness = await relays();
  await harness.publish(outgoing({ id: "leased" }), outgoing({ id: "later" }), outgoing({ id: "now" }));
  await harness.tamper(
    `update sagabox.outbox set lease_until = clock_timestamp() + interval '700 ms' where message_id = 'leased';
     update sagabox.outbox set attempts = 1, due_at = clock_timestamp() + interval '700 ms' where message_id = 'later'`,
  );
  await harness.relay().start();
  await until(() => harness.transport.ids.length > 0);
  expect(harness.transport.ids).toEqual(["now"]);
  await harness.drained();
  expect(harness.transport.ids.toSorted()).toEqual(["later", "leased", "now"]);
});

test("A8, rule 1: the next relay finds the rows of a relay that died, without a reset", async () => {
  const harness = await relays();
  harness.transport.before = () => new Promise(() => undefined);
  await harness.publish(outgoing({ id: "a" }));
  const dead = harness.relay({ worker: "dead", leaseMs: 1_000, publishTimeout: 100 });
  await dead.start();
  await until(() => harness.transport.calls.length === 1);
  harness.database.silence();
  harness.transport.before = () => Promise.resolve();
  const { rows } = await harness.pool.query("select count(*)::int as n from sagabox.member");
  expect(rows).toEqual([{ n: 1 }]);
  await harness.relay({ worker: "alive", database: harness.fresh() }).start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["a"]);
  expect(await harness.rows("select relay from sagabox.receipt")).toEqual([{ relay: "alive" }]);
  harness.database.speak();
});
