import { describe } from "vitest";
import { requestSuite } from "../../support/request-suite.ts";
import { missing, newPrefix, createTransport } from "./harness.ts";

describe.skipIf(missing)("requests over Kafka", () => {
  requestSuite(() => {
    const options = { prefix: newPrefix() };
    return [createTransport(options), createTransport(options)];
  });
});
