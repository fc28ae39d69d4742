import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { tracingSuite, type TracingFixture } from "../../support/traces.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("traces over RabbitMQ", () => {
  const tracingFixture = (): TracingFixture => {
    const options = { url: brokerUrl, prefix: ownPrefix() };
    return { transports: [rabbitmq(options), rabbitmq(options)], system: "rabbitmq" };
  };
  tracingSuite("relay", tracingFixture, "writer");
});
