import { describe } from "vitest";
import { sagaSuite } from "../../support/saga-suite.ts";
import { missing, newPrefix, createTransport } from "./harness.ts";

describe.skipIf(missing)("sagas over Kafka", () => {
  sagaSuite(() => {
    const options = { prefix: newPrefix() };
    return [createTransport(options), createTransport(options)];
  });
});
