import { describe } from "vitest";
import { deadLetterSuite } from "../../support/broker-suites.ts";
import { missing, newPrefix, createTransport, rawTopic } from "./harness.ts";
import { readHeaders } from "./raw-topic.ts";

describe.skipIf(missing)("dead letters at Kafka", () => {
  deadLetterSuite(() => {
    const prefix = newPrefix();
    const topic = rawTopic(`${prefix}events.story.order.placed.dlq`);
    return {
      transport: createTransport({ prefix }),
      letters: async () =>
        (await topic.read()).map((record) => ({
          body: record.value?.toString() ?? "",
          headers: readHeaders(record),
        })),
    };
  });
});
