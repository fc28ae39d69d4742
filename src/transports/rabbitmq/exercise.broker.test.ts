import { describe, expect, test } from "vitest";
import { brokerUrl, missing } from "../../../test/brokers/rabbitmq/broker.ts";
import { capabilities, underTest } from "../../../test/brokers/rabbitmq/under-test.ts";
import { caseTitle } from "../../../test/support/broker-suites.ts";
import { exerciseTransport, type SkippedCase } from "../../testing/index.ts";

describe.skipIf(missing !== undefined).each(["quorum", "classic"] as const)("%s queues", (queues) => {
  const skipped: readonly SkippedCase[] = exerciseTransport(
    { test: (name, run) => test(caseTitle(name, "B3"), run) },
    () => underTest(brokerUrl, queues),
    { capabilities, offers: ["abandon", "cutConnections", "putForeign", "deadLetters"] },
  );

  test("B1, B3: only capabilities that RabbitMQ lacks are left out", () => {
    expect([...new Set(skipped.map(({ reason }) => reason))].toSorted()).toEqual([
      "the transport does not support keepsUnrouted",
      "the transport does not support ordersRetries",
      "the transport does not support replays",
      "the transport supports rejectsUnrouted",
    ]);
  });
});
