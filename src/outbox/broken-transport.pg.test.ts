import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { ScriptedTransport } from "../../test/support/scripted-transport.ts";

const LETTER =
  "select message_id, reason, error_message, held_seq is not null as holds from sagabox.dead_letter";

test("a publish without outcomes does not stop the worker: its messages are sent again", async () => {
  const harness = await relays();
  const { transport } = harness;
  const publish = transport.publish.bind(transport);
  let calls = 0;
  transport.publish = (batch) => (++calls <= 2 ? Promise.resolve(undefined as never) : publish(batch));
  await harness.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await harness.relay().start();
  await harness.drained();
  expect(transport.ids).toEqual(["a", "b"]);
  expect(harness.observer.of("relay.paused")[0]).toMatchObject({
    reason: "unknown",
    error: 'publish() of transport "scripted" must return an array of outcomes',
  });
});

test("A9: a publish without outcomes leaves the message to the relay, and the caller does not fail", async () => {
  const harness = await relays();
  harness.transport.publish = () => Promise.resolve(undefined as never);
  const { send } = harness.optimistic();
  await send(outgoing({ id: "a" }));
  expect(await harness.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "timeout" }]);
  expect(await harness.rows("select attempts, lease_until from sagabox.outbox")).toEqual([
    { attempts: 0, lease_until: null },
  ]);
});

test("a delivery that throws is reported, and its rows are sent later", async () => {
  const harness = await relays();
  const transport = new ScriptedTransport();
  const { capabilities } = transport;
  let reads = 0;
  Object.defineProperty(transport, "capabilities", {
    get: () => {
      if (++reads === 1) throw new Error("capabilities are not known yet");
      return capabilities;
    },
  });
  await harness.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  const relay = harness.relay({ transport });
  await relay.start();
  const [failure] = await harness.observer.until("storage.failed");
  expect(failure).toMatchObject({ doing: "delivering a batch", error: "capabilities are not known yet" });
  await harness.drained();
  expect([transport.ids, relay.inFlight]).toEqual([["a", "b"], 0]);
});

test("a message with unreadable headers is dead-lettered; its key and other messages are sent", async () => {
  const harness = await relays();
  await harness.publish(
    outgoing({ id: "1", key: "k" }),
    outgoing({ id: "damaged", key: "k" }),
    outgoing({ id: "2", key: "k" }),
    outgoing({ id: "other" }),
  );
  await harness.tamper("update sagabox.message set headers = '{' where id = 'damaged'");
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids.toSorted()).toEqual(["1", "2", "other"]);
  expect(harness.transport.ids.indexOf("1")).toBeLessThan(harness.transport.ids.indexOf("2"));
  expect(await harness.rows(LETTER)).toEqual([
    {
      message_id: "damaged",
      reason: "rejected",
      error_message: "The stored headers of the message are not a JSON object.",
      holds: false,
    },
  ]);
  expect(harness.observer.of("dead_letter.buried")).toMatchObject([{ id: "damaged" }]);
});

test("onDead hold: a damaged head holds the later messages of its key", async () => {
  const harness = await relays();
  await harness.publish(
    outgoing({ id: "damaged", key: "k", holdsOnDeath: true }),
    outgoing({ id: "behind", key: "k" }),
    outgoing({ id: "other" }),
  );
  await harness.tamper("update sagabox.message set headers = '[]' where id = 'damaged'");
  await harness.relay().start();
  await harness.observer.until("dead_letter.buried");
  await until(() => harness.transport.ids.length === 1);
  expect(harness.transport.ids).toEqual(["other"]);
  expect(await harness.rows(LETTER)).toMatchObject([{ message_id: "damaged", holds: true }]);
});
