import { expect, test } from "vitest";
import { streamFor } from "../message/index.ts";
import { silentObserver } from "../telemetry/index.ts";
import type { Delivery } from "../transport/index.ts";
import type { ParkedKeys } from "../transports/postgres/index.ts";
import { aMessage } from "../../test/support/messages.ts";
import { KeyGate } from "./parking-transport.ts";

const stream = streamFor("orders", "k");

function arriving(id: string): Delivery {
  const done = (): Promise<void> => Promise.resolve();
  return {
    message: aMessage({ id, topic: "orders", key: "k" }),
    attempt: 1,
    orderKey: "k",
    signal: new AbortController().signal,
    ack: done,
    retry: done,
    release: done,
  };
}

function setup() {
  const parked: string[] = [];
  const questions: ((occupied: boolean) => void)[] = [];
  const parkedKeys: Pick<ParkedKeys, "park" | "occupied"> = {
    park: async (these) => void parked.push(...these.map(({ message }) => message.id)),
    occupied: () =>
      new Promise((resolve) => questions.push((occupied) => resolve(new Set(occupied ? [stream] : [])))),
  };
  const handed: Delivery[] = [];
  const receive = (delivery: Delivery): void => void handed.push(delivery);
  const gate = new KeyGate({
    parkedKeys: parkedKeys as ParkedKeys,
    group: "g",
    observer: silentObserver,
    receive,
  });
  const answer = async (occupied: boolean): Promise<void> => {
    await expect.poll(() => questions.length).toBeGreaterThan(0);
    questions.shift()?.(occupied);
  };
  return { gate, handed, parked, answer };
}

test("rule 18: an answer from before a key was parked lets nothing overtake what is parked", async () => {
  const { gate, handed, parked, answer } = setup();
  gate.admit(arriving("m-0"));
  gate.admit(arriving("m-1")); // starts another query, although the first answer serves both
  await answer(false);
  await expect.poll(() => handed.length).toBe(2);
  await handed[0]?.retry({ delayMs: 0, countsAsAttempt: true, error: "not yet" });
  await handed[1]?.release();
  expect(parked).toEqual(["m-0", "m-1"]);
  gate.admit(arriving("m-2"));
  await answer(false); // answers the query from before the failure
  await answer(true);
  await expect.poll(() => parked).toEqual(["m-0", "m-1", "m-2"]);
  expect(handed).toHaveLength(2);
});
