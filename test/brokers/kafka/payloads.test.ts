import { describe } from "vitest";
import { payloadSuite } from "../../support/stores/payload-harness.ts";
import { missing, newPrefix, createTransport } from "./harness.ts";

describe.skipIf(missing)("large payloads over Kafka", () => {
  payloadSuite(() => createTransport({ prefix: newPrefix() }));
});
