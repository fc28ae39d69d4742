import { describe } from "vitest";
import { payloadStory } from "../../support/stores/payload-story.ts";
import { missing, newPrefix, transportOf } from "./harness.ts";

describe.skipIf(missing)("large payloads over Kafka", () => {
  payloadStory(() => transportOf({ prefix: newPrefix() }));
});
