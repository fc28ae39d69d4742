import { describe } from "vitest";
import { textHeaders } from "../../../src/transports/rabbitmq/properties.ts";
import { deadLetterStory } from "../../support/dead-letter-story.ts";
import { lookInto, missing, ownPrefix, transport } from "./broker.ts";

describe.skipIf(missing)("dead letters at RabbitMQ", () => {
  deadLetterStory(() => {
    const prefix = ownPrefix();
    return {
      transport: transport({ prefix }),
      letters: async () =>
        (await lookInto(`${prefix}.dlq.shop.books`)).map(({ content, properties }) => ({
          body: content.toString(),
          headers: textHeaders(properties.headers),
        })),
    };
  });
});
