import { describe, inject } from "vitest";
import { canarySuite } from "../../support/canary-suite.ts";
import { newPrefix, sharedUrl, createTransport } from "./harness.ts";

const found = inject("nats");

describe.skipIf("missing" in found)("personal values over NATS", () => {
  canarySuite(() => ({
    transport: createTransport({ servers: sharedUrl, prefix: newPrefix() }),
    brokerFolder: "folder" in found ? found.folder : "",
  }));
});
