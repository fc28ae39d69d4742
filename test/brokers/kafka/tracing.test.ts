import { describe } from "vitest";
import { tracingStory } from "../../support/tracing-story.ts";
import { missing, newPrefix, transportOf } from "./harness.ts";

describe.skipIf(missing)("traces over Kafka", () => {
  tracingStory("writer", () => {
    const options = { prefix: newPrefix() };
    return { transports: [transportOf(options), transportOf(options)], system: "kafka" };
  });
});
