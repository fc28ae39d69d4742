import { expect, test } from "vitest";
import { nats } from "../../../src/transports/nats/index.ts";
import { missing, sharedUrl } from "./harness.ts";
import { underTest } from "./under-test.ts";
import { exerciseTransport } from "../../../src/testing/index.ts";
import { caseTitle } from "../../support/broker-suites.ts";
import { ofParking, withParking } from "../../support/parking.ts";

const skipped = exerciseTransport(
  { test: (name, run) => test.skipIf(missing)(caseTitle(name, "B4", "rule 18"), run) },
  async () => withParking(await underTest(sharedUrl, 1_500), 1_500),
  {
    capabilities: { ...nats().capabilities, ordersRetries: true },
    offers: ["abandon", "cutConnections", "putForeign", "deadLetters"],
    skip: ofParking,
  },
);

test("B4, rule 18: with parking it is asked to keep order through retries", () => {
  expect(skipped.map(({ reason }) => reason)).not.toContain("the transport does not support ordersRetries");
});
