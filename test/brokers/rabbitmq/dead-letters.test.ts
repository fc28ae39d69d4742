import { describe } from "vitest";
import { toTextHeaders } from "../../../src/transports/rabbitmq/properties.ts";
import { deadLetterSuite } from "../../support/broker-suites.ts";
import { lookInto, missing, ownPrefix, transport } from "./broker.ts";

describe.skipIf(missing)("dead letters at RabbitMQ", () => {
  deadLetterSuite(() => {
    const prefix = ownPrefix();
    return {
      transport: transport({ prefix }),
      letters: async () =>
        (await lookInto(`${prefix}.dlq.shop.books`)).map(({ content, properties }) => ({
          body: content.toString(),
          headers: toTextHeaders(properties.headers),
        })),
    };
  });
});
