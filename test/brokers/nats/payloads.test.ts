import { describe } from "vitest";
import { payloadStory } from "../../support/stores/payload-story.ts";
import { missing, newPrefix, sharedUrl, transportOf } from "./harness.ts";

describe.skipIf(missing)("large payloads over NATS", () => {
  payloadStory(() => transportOf({ servers: sharedUrl, prefix: newPrefix() }));
});
