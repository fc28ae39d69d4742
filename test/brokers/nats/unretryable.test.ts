import { describe } from "vitest";
import { unretryableSuite } from "../../support/broker-suites.ts";
import { missing, newPrefix, sharedUrl, createTransport } from "./harness.ts";
import { putBytes } from "./foreign-client.ts";

const MAX_PAYLOAD = 1_048_576;

describe.skipIf(missing)("messages without a copy at NATS", () => {
  unretryableSuite(() => {
    const prefix = newPrefix();
    return {
      transport: createTransport({ servers: sharedUrl, prefix }),
      putLarge: (bodyOf) => {
        const room = MAX_PAYLOAD - bodyOf("").length;
        return putBytes(sharedUrl, prefix, "events.story.stranger.sent", bodyOf("x".repeat(room)));
      },
    };
  });
});
