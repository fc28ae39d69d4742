import { describe } from "vitest";
import { unretryableStory } from "../../support/unretryable-story.ts";
import { missing, newPrefix, sharedUrl, transportOf } from "./harness.ts";
import { putBytes } from "./stranger.ts";

const MAX_PAYLOAD = 1_048_576;

describe.skipIf(missing)("messages without a copy at NATS", () => {
  unretryableStory(() => {
    const prefix = newPrefix();
    return {
      transport: transportOf({ servers: sharedUrl, prefix }),
      putLarge: (bodyOf) => {
        const room = MAX_PAYLOAD - bodyOf("").length;
        return putBytes(sharedUrl, prefix, "events.story.stranger.sent", bodyOf("x".repeat(room)));
      },
    };
  });
});
