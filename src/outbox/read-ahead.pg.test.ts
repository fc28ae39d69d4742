import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";

test("behind a silent broker at most four batches are in flight", async () => {
  const { publish, relay: relayWith, transport, drained } = await relays();
  let answer = (): void => undefined;
  const answered = new Promise<void>((resolve) => (answer = resolve));
  transport.before = () => answered;
  const all = Array.from({ length: 300 }, (_, n) => outgoing({ id: `m${n}`, key: `k${n}` }));
  await publish(...all);
  const relay = relayWith({ batchSize: 10 });
  await relay.start();
  await until(() => relay.inFlight >= 40);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(relay.inFlight).toBe(40);
  answer();
  await drained();
  expect(transport.ids.toSorted()).toEqual(all.map(({ message }) => message.id).toSorted());
});
