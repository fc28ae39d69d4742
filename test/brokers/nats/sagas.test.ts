import { describe } from "vitest";
import { sagaRequirementsSuite } from "../../support/saga-requirements-suite.ts";
import { sagaSuite } from "../../support/saga-suite.ts";
import { missing, newPrefix, sharedUrl, createTransport } from "./harness.ts";

describe.skipIf(missing)("sagas over NATS", () => {
  sagaSuite(() => {
    const options = { servers: sharedUrl, prefix: newPrefix() };
    return [createTransport(options), createTransport(options)];
  });
  sagaRequirementsSuite(() => {
    const options = { servers: sharedUrl, prefix: newPrefix() };
    return () => createTransport(options);
  });
});
