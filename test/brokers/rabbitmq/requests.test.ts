import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { requestStory } from "../../support/request-story.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("requests over RabbitMQ", () => {
  requestStory(() => {
    const options = { url: brokerUrl, prefix: ownPrefix() };
    return [rabbitmq(options), rabbitmq(options)];
  });
});
