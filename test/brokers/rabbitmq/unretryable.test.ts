import { describe } from "vitest";
import { unretryableStory } from "../../support/unretryable-story.ts";
import { directly, missing, ownPrefix, transport } from "./broker.ts";

// One frame holds all headers, and the client has room for so much.
const MOST_HEADERS = 65_536 - 30;

describe.skipIf(missing)("messages without a copy at RabbitMQ", () => {
  unretryableStory(() => {
    const prefix = ownPrefix();
    return {
      transport: transport({ prefix }),
      putLarge: (bodyOf) =>
        directly(async (channel) => {
          const headers = { filler: "x".repeat(MOST_HEADERS) };
          const options = { headers, contentType: "application/json" };
          channel.publish(`${prefix}.event.story`, "other.story.stranger.sent.info", bodyOf(""), options);
          await channel.waitForConfirms();
        }),
    };
  });
});
