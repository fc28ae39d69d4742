import { describe } from "vitest";
import { deadLetterStory } from "../../support/dead-letter-story.ts";
import { missing, newPrefix, transportOf, rawTopic } from "./harness.ts";
import { headersOf } from "./raw-topic.ts";

describe.skipIf(missing)("dead letters at Kafka", () => {
  deadLetterStory(() => {
    const prefix = newPrefix();
    const topic = rawTopic(`${prefix}events.story.order.placed.dlq`);
    return {
      transport: transportOf({ prefix }),
      letters: async () =>
        (await topic.read()).map((record) => ({
          body: record.value?.toString() ?? "",
          headers: headersOf(record),
        })),
    };
  });
});
