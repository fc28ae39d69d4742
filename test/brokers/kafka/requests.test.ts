import { describe } from "vitest";
import { requestStory } from "../../support/request-story.ts";
import { missing, newPrefix, transportOf } from "./harness.ts";

describe.skipIf(missing)("requests over Kafka", () => {
  requestStory(() => {
    const options = { prefix: newPrefix() };
    return [transportOf(options), transportOf(options)];
  });
});
