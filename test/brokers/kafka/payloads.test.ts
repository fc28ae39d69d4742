import { describe } from "vitest";
import { payloadSuite } from "../../support/stores/payload-suite.ts";
import { missing, newPrefix, createTransport } from "./harness.ts";

describe.skipIf(missing)("large payloads over Kafka", () => {
  payloadSuite(() => createTransport({ prefix: newPrefix() }));
});
