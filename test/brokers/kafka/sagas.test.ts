import { describe } from "vitest";
import { sagaStory } from "../../support/saga-story.ts";
import { missing, newPrefix, transportOf } from "./harness.ts";

describe.skipIf(missing)("sagas over Kafka", () => {
  sagaStory(() => {
    const options = { prefix: newPrefix() };
    return [transportOf(options), transportOf(options)];
  });
});
