import { afterEach, describe } from "vitest";
import { textHeaders } from "../../../src/transports/rabbitmq/properties.ts";
import { cloudEventStory } from "../../support/cloud-event-story.ts";
import { closeAll, directly, lookInto, missing, ownPrefix, transport } from "./broker.ts";

describe.skipIf(missing)("CloudEvents at RabbitMQ", () => {
  afterEach(closeAll);

  cloudEventStory(() => {
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
          headers: textHeaders(properties.headers),
          contentType: properties.contentType as string,
        })),
    };
  });
});
