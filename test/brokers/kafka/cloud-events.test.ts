import { Kafka, type CloudEventV1, type KafkaMessage } from "cloudevents";
import { describe } from "vitest";
import { cloudEventSdkSuite, cloudEventSuite, cloudEventTopic } from "../../support/cloud-event-suite.ts";
import { missing, newPrefix, createTransport, rawTopic } from "./harness.ts";
import { readHeaders } from "./raw-topic.ts";

describe.skipIf(missing)("CloudEvents at Kafka", () => {
  cloudEventSuite(() => {
    const prefix = newPrefix();
    const topic = rawTopic(`${prefix}${cloudEventTopic}`);
    const dead = rawTopic(`${prefix}${cloudEventTopic}.dlq`);
    return {
      prefix: "ce_",
      transport: (format) => createTransport({ prefix, format, retrySteps: [100] }),
      putForeign: ({ body, headers, contentType = "" }) => {
        const all = Object.entries({ ...headers, "content-type": contentType });
        return topic.write(
          Buffer.from(body),
          all.map(([name, value]) => [name, Buffer.from(value)]),
        );
      },
      deadLetters: async () =>
        (await dead.read()).map((record) => ({ body: record.value, headers: readHeaders(record) })),
    };
  });

  cloudEventSdkSuite(() => {
    const prefix = newPrefix();
    const topic = rawTopic(`${prefix}${cloudEventTopic}`);
    return {
      transport: (format) => createTransport({ prefix, format }),
      readBySdk: async () =>
        (await topic.read()).map((record) => {
          const body = record.value.toString();
          const message = {
            headers: readHeaders(record),
            key: record.key?.toString() ?? "",
            value: body,
            body,
          };
          return Kafka.toEvent(message as KafkaMessage) as CloudEventV1<unknown>;
        }),
    };
  });
});
