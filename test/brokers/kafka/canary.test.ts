import { describe, inject } from "vitest";
import { canarySuite } from "../../support/canary-suite.ts";
import { createTransport } from "./harness.ts";

const found = inject("kafka");

describe.skipIf("missing" in found)("personal values over Kafka", () => {
  // Not compressed: what is could not be looked through.
  canarySuite(() => ({
    transport: createTransport({ compression: "none" }),
    brokerFolder: "folder" in found ? found.folder : "",
  }));
});
