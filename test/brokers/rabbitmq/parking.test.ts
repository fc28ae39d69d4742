import { expect, test } from "vitest";
import { brokerUrl, missing } from "./broker.ts";
import { capabilities, underTest } from "./under-test.ts";
import { exerciseTransport } from "../../../src/testing/index.ts";
import { caseTitle } from "../../support/broker-suites.ts";
import { ofParking, withParking } from "../../support/parking.ts";

const skipped = exerciseTransport(
  { test: (name, run) => test.skipIf(missing !== undefined)(caseTitle(name, "B3", "rule 18"), run) },
  async () => withParking(await underTest(brokerUrl, "quorum"), 1_500),
  {
    capabilities: { ...capabilities, ordersRetries: true },
    offers: ["abandon", "cutConnections", "putForeign", "deadLetters"],
    skip: ofParking,
  },
);

test("B3, rule 18: with parking it is asked to keep order through retries", () => {
  expect(skipped.map(({ reason }) => reason)).not.toContain("the transport does not support ordersRetries");
});
