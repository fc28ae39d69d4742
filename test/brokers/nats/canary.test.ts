import { describe, inject } from "vitest";
import { canaryStory } from "../../support/canary-story.ts";
import { newPrefix, sharedUrl, transportOf } from "./harness.ts";

const found = inject("nats");

describe.skipIf("missing" in found)("personal values over NATS", () => {
  canaryStory(() => ({
    transport: transportOf({ servers: sharedUrl, prefix: newPrefix() }),
    brokerFolder: "folder" in found ? found.folder : "",
  }));
});
