import { describe } from "vitest";
import { tracingStory, type TracingPlace } from "../../support/tracing-story.ts";
import { missing, newPrefix, transportOf } from "./harness.ts";

describe.skipIf(missing)("traces over Kafka", () => {
  const place = (): TracingPlace => {
    const options = { prefix: newPrefix() };
    return { transports: [transportOf(options), transportOf(options)], system: "kafka" };
  };
  tracingStory("relay", place, "writer");
});
