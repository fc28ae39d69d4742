import { describe, inject } from "vitest";
import { canaryStory } from "../../support/canary-story.ts";
import { transport } from "./broker.ts";

const found = inject("rabbitmq");

describe.skipIf("missing" in found)("personal values over RabbitMQ", () => {
  canaryStory(() => ({ transport: transport(), brokerFolder: "folder" in found ? found.folder : "" }));
});
