import { describe } from "vitest";
import { requestStory } from "../../support/request-story.ts";
import { missing, newPrefix, sharedUrl, transportOf } from "./harness.ts";

describe.skipIf(missing)("requests over NATS", () => {
  requestStory(() => {
    const options = { servers: sharedUrl, prefix: newPrefix() };
    return [transportOf(options), transportOf(options)];
  });
});
