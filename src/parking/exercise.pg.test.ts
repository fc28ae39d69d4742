import { expect, test } from "vitest";
import { caseTitle } from "../../test/support/broker-suites.ts";
import { ofParking, parkingHarness } from "../../test/support/parking.ts";
import { exerciseTransport, MemoryTransport } from "../testing/index.ts";

const { capabilities } = new MemoryTransport();

const skipped = exerciseTransport(
  { test: (name, run) => test(caseTitle(name, "rule 18"), run) },
  async () => {
    const broker = new MemoryTransport();
    const harness = await parkingHarness(() => Promise.resolve(broker));
    return {
      ...harness,
      cutConnections: harness.cutDatabase,
      putForeign: async (topic: string, body: Uint8Array) => broker.putForeign(topic, body),
      deadLetters: async () =>
        broker.deadLetters.map(({ message, body, note }) => ({
          body,
          headers: { ...message.headers, ...note },
        })),
    };
  },
  { capabilities, offers: ["cutConnections", "putForeign", "deadLetters"], skip: ofParking },
);

test("B1: a broker with parking passes the cases of the broker alone", () => {
  expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
    "a process of the transport cannot crash alone",
    "parked messages have a prefetch of their own",
    "the transport does not support rejectsUnrouted",
    "the transport supports replays",
  ]);
});
