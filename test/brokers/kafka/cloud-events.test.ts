import { Kafka, type CloudEventV1, type KafkaMessage } from "cloudevents";
import { describe } from "vitest";
import { cloudEventSdkStory, cloudEventStory, cloudEventTopic } from "../../support/cloud-event-story.ts";
import { missing, newPrefix, transportOf, rawTopic } from "./harness.ts";
import { headersOf } from "./raw-topic.ts";

describe.skipIf(missing)("CloudEvents at Kafka", () => {
  cloudEventStory(() => {
    const prefix = newPrefix();
    const topic = rawTopic(`${prefix}${cloudEventTopic}`);
    const dead = rawTopic(`${prefix}${cloudEventTopic}.dlq`);
    return {
      prefix: "ce_",
      transport: (format) => transportOf({ prefix, format, retrySteps: [100] }),
      putForeign: ({ body, headers, contentType = "" }) => {
        const all = Object.entries({ ...headers, "content-type": contentType });
        return topic.write(
          Buffer.from(body),
          all.map(([name, value]) => [name, Buffer.from(value)]),
        );
      },
      deadLetters: async () =>
        (await dead.read()).map((record) => ({ body: record.value, headers: headersOf(record) })),
    };
  });

  cloudEventSdkStory(() => {
    const prefix = newPrefix();
    const topic = rawTopic(`${prefix}${cloudEventTopic}`);
    return {
      transport: (format) => transportOf({ prefix, format }),
      readBySdk: async () =>
        (await topic.read()).map((record) => {
          const body = record.value.toString();
          const message = {
            headers: headersOf(record),
            key: record.key?.toString() ?? "",
            value: body,
            body,
          };
          return Kafka.toEvent(message as KafkaMessage) as CloudEventV1<unknown>;
        }),
    };
  });
});
