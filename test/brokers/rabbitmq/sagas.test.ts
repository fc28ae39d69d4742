import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { sagaSuite } from "../../support/saga-suite.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("sagas over RabbitMQ", () => {
  sagaSuite(() => {
    const options = { url: brokerUrl, prefix: ownPrefix() };
    return [rabbitmq(options), rabbitmq(options)];
  });
});
