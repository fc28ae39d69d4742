import { describe } from "vitest";
import { unretryableSuite } from "../../support/broker-suites.ts";
import { directly, missing, ownPrefix, transport } from "./broker.ts";

// One frame holds all headers, and the client has room for so much.
const MAX_HEADER_BYTES = 65_536 - 30;

describe.skipIf(missing)("messages without a copy at RabbitMQ", () => {
  unretryableSuite(() => {
    const prefix = ownPrefix();
    return {
      transport: transport({ prefix }),
      putLarge: (bodyOf) =>
        directly(async (channel) => {
          const headers = { filler: "x".repeat(MAX_HEADER_BYTES) };
          const options = { headers, contentType: "application/json" };
          channel.publish(`${prefix}.event.story`, "other.story.stranger.sent.info", bodyOf(""), options);
          await channel.waitForConfirms();
        }),
    };
  });
});
