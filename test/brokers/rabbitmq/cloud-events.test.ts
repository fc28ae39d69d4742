import { afterEach, describe } from "vitest";
import { toTextHeaders } from "../../../src/transports/rabbitmq/properties.ts";
import { cloudEventSuite } from "../../support/cloud-event-suite.ts";
import { closeAll, directly, lookInto, missing, ownPrefix, transport } from "./broker.ts";

describe.skipIf(missing)("CloudEvents at RabbitMQ", () => {
  afterEach(closeAll);

  cloudEventSuite(() => {
    const prefix = ownPrefix();
    return {
      prefix: "cloudEvents:",
      transport: (format) => transport({ prefix, format }),
      putForeign: ({ body, headers, contentType }) =>
        directly(async (channel) => {
          const properties = {
            headers: { ...headers },
            ...(contentType === undefined ? {} : { contentType }),
          };
          channel.publish(`${prefix}.event.order`, "else.order.placed.info", Buffer.from(body), properties);
          await channel.waitForConfirms();
        }),
      deadLetters: async () =>
        (await lookInto(`${prefix}.dlq.shop.books`)).map(({ content, properties }) => ({
          body: content,
          headers: toTextHeaders(properties.headers),
          contentType: properties.contentType as string,
        })),
    };
  });
});
