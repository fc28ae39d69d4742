import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { sagaStory } from "../../support/saga-story.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("sagas over RabbitMQ", () => {
  sagaStory(() => {
    const options = { url: brokerUrl, prefix: ownPrefix() };
    return [rabbitmq(options), rabbitmq(options)];
  });
});
