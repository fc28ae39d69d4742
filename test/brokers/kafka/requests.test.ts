import { describe } from "vitest";
import { requestStory } from "../../support/request-story.ts";
import { missing, newPrefix, transportOf } from "./harness.ts";

describe.skipIf(missing)("requests over Kafka", () => {
  requestStory(() => {
    const prefix = newPrefix();
    return [transportOf({ prefix }), transportOf({ prefix })];
  });
});
