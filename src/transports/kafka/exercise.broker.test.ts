import { expect, inject, test } from "vitest";
import { capabilities, underTest } from "../../../test/brokers/kafka/under-test.ts";
import { caseTitle } from "../../../test/support/broker-suites.ts";
import { exerciseTransport } from "../../testing/index.ts";

const broker = inject("kafka");

const skipped = exerciseTransport(
  {
    test: (name, run) =>
      test(caseTitle(name, "B2"), async (context) => {
        if ("missing" in broker) return context.skip(broker.missing);
        return run();
      }),
  },
  () => underTest("missing" in broker ? "" : broker.url),
  { capabilities, offers: ["abandon", "cutConnections", "putForeign", "deadLetters"] },
);

test("B1, B2: the only cases left out need rejected unrouted messages or ordered retries, which Kafka lacks", () => {
  expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
    "the transport does not support ordersRetries",
    "the transport does not support rejectsUnrouted",
    "the transport supports replays",
  ]);
});
