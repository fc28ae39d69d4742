import { expect, test } from "vitest";
import { outgoing, relays } from "../../test/support/relays.ts";

const everyTime = { retry: { firstDelay: 0, maxDelay: 0 } };

test("A7: after its last attempt a message is a dead letter, with its attempts and its error", async () => {
  const house = await relays();
  house.transport.answer = () => "rejected";
  await house.publish(outgoing({ id: "a", maxAttempts: 3 }));
  await house.relay(everyTime).start();
  await house.observer.until("dead_letter.buried");
  expect(
    await house.rows("select message_id, reason, attempts, error_message, held_seq from sagabox.dead_letter"),
  ).toEqual([
    {
      message_id: "a",
      reason: "exhausted",
      attempts: 3,
      error_message: 'told to answer "rejected"',
      held_seq: null,
    },
  ]);
  expect([await house.waiting(), house.transport.calls.length]).toEqual([0, 3]);
});
