import { describe } from "vitest";
import { tracingSuite, type TracingFixture } from "../../support/traces.ts";
import { missing, newPrefix, createTransport } from "./harness.ts";

describe.skipIf(missing)("traces over Kafka", () => {
  const tracingFixture = (): TracingFixture => {
    const options = { prefix: newPrefix() };
    return { transports: [createTransport(options), createTransport(options)], system: "kafka" };
  };
  tracingSuite("relay", tracingFixture, "writer");
});
