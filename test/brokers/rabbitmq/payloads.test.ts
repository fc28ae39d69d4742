import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { payloadStory } from "../../support/stores/payload-story.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("large payloads over RabbitMQ", () => {
  payloadStory(() => rabbitmq({ url: brokerUrl, prefix: ownPrefix() }));
});
