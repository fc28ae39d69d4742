import { describe, inject } from "vitest";
import { canaryStory } from "../../support/canary-story.ts";
import { transportOf } from "./harness.ts";

const found = inject("kafka");

describe.skipIf("missing" in found)("personal values over Kafka", () => {
  // Not compressed: what is could not be looked through.
  canaryStory(() => ({
    transport: transportOf({ compression: "none" }),
    brokerFolder: "folder" in found ? found.folder : "",
  }));
});
