import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { tracingStory, type TracingPlace } from "../../support/tracing-story.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("traces over RabbitMQ", () => {
  const place = (): TracingPlace => {
    const options = { url: brokerUrl, prefix: ownPrefix() };
    return { transports: [rabbitmq(options), rabbitmq(options)], system: "rabbitmq" };
  };
  tracingStory("relay", place, "writer");
});
