import { expect, test } from "vitest";
import { documentBus, TestEvent } from "./document-bus.ts";

// Scenarios of the design documents, under their names. No relay runs in any of them: what is sent, the publisher sent.

test("A9, H4, test_optimistic_send_success: the publisher sends right after its commit", async () => {
  const { bus, transport, statuses, observer } = await documentBus();
  await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: 1 }));
  await observer.until("optimistic.succeeded");
  expect(transport.published).toHaveLength(1);
  expect(await statuses()).toEqual(["sent"]);
});

test("A9, H4, test_optimistic_send_timeout_fallback: a broker that does not answer costs the caller nothing", async () => {
  const { bus, transport, statuses, observer } = await documentBus({ optimisticTimeout: "50ms" });
  transport.hang();
  await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: 1 }));
  await observer.until("optimistic.failed");
  await expect.poll(statuses).toEqual(["pending"]);
  expect(transport.published).toEqual([]);
});

test("A9, H4, test_optimistic_disabled: switched off, everything is left to the relay", async () => {
  const { bus, transport, statuses, observer } = await documentBus({ optimistic: false });
  await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: 1 }));
  expect(await statuses()).toEqual(["pending"]);
  expect(transport.published).toEqual([]);
  expect(observer.of("optimistic.attempted")).toEqual([]);
});

test("A9, H4, test_optimistic_send_broker_error: an error of the broker leaves the message to the relay", async () => {
  const { bus, transport, statuses, observer } = await documentBus();
  transport.goDown();
  await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: 1 }));
  await observer.until("optimistic.failed");
  await expect.poll(statuses).toEqual(["pending"]);
});
