import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { tracingStory } from "../../support/tracing-story.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("traces over RabbitMQ", () => {
  tracingStory("relay", () => {
    const options = { url: brokerUrl, prefix: ownPrefix() };
    return { transports: [rabbitmq(options), rabbitmq(options)], system: "rabbitmq" };
  });
});
