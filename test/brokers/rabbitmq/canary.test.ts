import { describe, inject } from "vitest";
import { canarySuite } from "../../support/canary-suite.ts";
import { transport } from "./broker.ts";

const found = inject("rabbitmq");

describe.skipIf("missing" in found)("personal values over RabbitMQ", () => {
  canarySuite(() => ({ transport: transport(), brokerFolder: "folder" in found ? found.folder : "" }));
});
