import { describe } from "vitest";
import { requestSuite } from "../../support/broker-suites.ts";
import { missing, newPrefix, sharedUrl, createTransport } from "./harness.ts";

describe.skipIf(missing)("requests over NATS", () => {
  requestSuite(() => {
    const options = { servers: sharedUrl, prefix: newPrefix() };
    return [createTransport(options), createTransport(options)];
  });
});
