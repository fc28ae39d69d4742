import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { ScriptedTransport } from "../../test/support/scripted-transport.ts";

const LETTER =
  "select message_id, reason, error_message, held_seq is not null as holds from sagabox.dead_letter";

test("a publish that resolves to nothing ends no worker: its messages are unknown and sent again", async () => {
  const house = await relays();
  const { transport } = house;
  const publish = transport.publish.bind(transport);
  let calls = 0;
  transport.publish = (batch) => (++calls <= 2 ? Promise.resolve(undefined as never) : publish(batch));
  await house.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  await house.relay().start();
  await house.drained();
  expect(transport.ids).toEqual(["a", "b"]);
  expect(house.observer.of("relay.paused")[0]).toMatchObject({
    reason: "unknown",
    error: 'publish() of transport "scripted" must answer with a list of outcomes',
  });
});

test("A9: a publish that resolves to nothing leaves the message to the relay, and the caller hears nothing", async () => {
  const house = await relays();
  house.transport.publish = () => Promise.resolve(undefined as never);
  const { send } = house.optimistic();
  await send(outgoing({ id: "a" }));
  expect(await house.observer.until("optimistic.failed")).toMatchObject([{ count: 1, reason: "timeout" }]);
  expect(await house.rows("select attempts, lease_until from sagabox.outbox")).toEqual([
    { attempts: 0, lease_until: null },
  ]);
});

test("a delivery that breaks for whatever reason gives its rows back and is told; they go out later", async () => {
  const house = await relays();
  const transport = new ScriptedTransport();
  const { capabilities } = transport;
  let asked = 0;
  Object.defineProperty(transport, "capabilities", {
    get: () => {
      if (++asked === 1) throw new Error("capabilities are not known yet");
      return capabilities;
    },
  });
  await house.publish(outgoing({ id: "a", key: "k" }), outgoing({ id: "b", key: "k" }));
  const relay = house.relay({ transport });
  await relay.start();
  const [told] = await house.observer.until("storage.failed");
  expect(told).toMatchObject({ doing: "delivering a batch", error: "capabilities are not known yet" });
  await house.drained();
  expect([transport.ids, relay.inFlight]).toEqual([["a", "b"], 0]);
});

test("a message whose headers cannot be read is a dead letter; its key and its neighbours flow", async () => {
  const house = await relays();
  await house.publish(
    outgoing({ id: "1", key: "k" }),
    outgoing({ id: "damaged", key: "k" }),
    outgoing({ id: "2", key: "k" }),
    outgoing({ id: "other" }),
  );
  await house.tamper("update sagabox.message set headers = '{' where id = 'damaged'");
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids.toSorted()).toEqual(["1", "2", "other"]);
  expect(house.transport.ids.indexOf("1")).toBeLessThan(house.transport.ids.indexOf("2"));
  expect(await house.rows(LETTER)).toEqual([
    {
      message_id: "damaged",
      reason: "rejected",
      error_message: "The stored headers of the message are not a JSON object.",
      holds: false,
    },
  ]);
  expect(house.observer.of("dead_letter.buried")).toMatchObject([{ id: "damaged" }]);
});

test("onDead hold: a damaged head holds its key, and what was read beside it", async () => {
  const house = await relays();
  await house.publish(
    outgoing({ id: "damaged", key: "k", holdsOnDeath: true }),
    outgoing({ id: "behind", key: "k" }),
    outgoing({ id: "other" }),
  );
  await house.tamper("update sagabox.message set headers = '[]' where id = 'damaged'");
  await house.relay().start();
  await house.observer.until("dead_letter.buried");
  await until(() => house.transport.ids.length === 1);
  expect(house.transport.ids).toEqual(["other"]);
  expect(await house.rows(LETTER)).toMatchObject([{ message_id: "damaged", holds: true }]);
});
