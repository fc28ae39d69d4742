import { describe } from "vitest";
import { sagaRows } from "../../support/saga-rows-story.ts";
import { sagaStory } from "../../support/saga-story.ts";
import { missing, newPrefix, sharedUrl, transportOf } from "./harness.ts";

describe.skipIf(missing)("sagas over NATS", () => {
  sagaStory(() => {
    const options = { servers: sharedUrl, prefix: newPrefix() };
    return [transportOf(options), transportOf(options)];
  });
  sagaRows(() => {
    const options = { servers: sharedUrl, prefix: newPrefix() };
    return () => transportOf(options);
  });
});
