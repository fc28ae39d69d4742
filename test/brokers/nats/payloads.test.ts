import { describe } from "vitest";
import { payloadSuite } from "../../support/stores/payload-harness.ts";
import { missing, newPrefix, sharedUrl, createTransport } from "./harness.ts";

describe.skipIf(missing)("large payloads over NATS", () => {
  payloadSuite(() => createTransport({ servers: sharedUrl, prefix: newPrefix() }));
});
