import { describe } from "vitest";
import { requestSuite } from "../../support/broker-suites.ts";
import { missing, newPrefix, createTransport } from "./harness.ts";

describe.skipIf(missing)("requests over Kafka", () => {
  requestSuite(() => {
    const options = { prefix: newPrefix() };
    return [createTransport(options), createTransport(options)];
  });
});
