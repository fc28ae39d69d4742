import { describe } from "vitest";
import { rabbitmq } from "sagabox/rabbitmq";
import { maxMessageBytes } from "../../support/brokers/rabbitmq-server.ts";
import { payloadSuite } from "../../support/stores/payload-harness.ts";
import { brokerUrl, missing, ownPrefix } from "./broker.ts";

describe.skipIf(missing !== undefined)("large payloads over RabbitMQ", () => {
  // What the transport takes must be what the server of the run takes.
  payloadSuite(() => rabbitmq({ url: brokerUrl, prefix: ownPrefix(), maxBytes: maxMessageBytes - 100_000 }));
});
