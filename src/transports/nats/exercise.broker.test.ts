import { expect, test } from "vitest";
import { missing, sharedUrl } from "../../../test/brokers/nats/harness.ts";
import { underTest } from "../../../test/brokers/nats/under-test.ts";
import { caseTitle } from "../../../test/support/broker-suites.ts";
import { exerciseTransport } from "../../testing/index.ts";
import { nats } from "./index.ts";

const { capabilities } = nats();
const runNamed = (name: string, run: () => Promise<void>): void =>
  test.skipIf(missing)(caseTitle(name, "B4"), run);

// The lease and ack wait exceed every test's deadline, so a redelivered message was released rather than expired.
const skipped = exerciseTransport({ test: runNamed }, () => underTest(sharedUrl, 60_000), {
  capabilities,
  offers: ["cutConnections", "putForeign", "deadLetters"],
});

exerciseTransport(
  {
    test: (name, run) =>
      skipped.some((left) => left.name === name && left.reason.startsWith("a process of the transport")) &&
      runNamed(name, run),
  },
  () => underTest(sharedUrl, 1_500),
  { capabilities, offers: ["abandon"] },
);

test("B1, B4: skips only the cases that streams cannot support, and a crash because of the long lease", () => {
  expect(new Set(skipped.map(({ reason }) => reason))).toEqual(
    new Set([
      "a process of the transport cannot crash alone",
      "the transport does not support ordersRetries",
      "the transport does not support rejectsUnrouted",
      "the transport supports replays",
    ]),
  );
});
