import { afterAll, beforeAll, describe, test } from "vitest";
import { exerciseTransport, type Hook, type TransportUnderTest } from "../../src/testing/index.ts";
import { nats } from "../../src/transports/nats/index.ts";
import type { Capabilities } from "../../src/transport/index.ts";
import * as kafka from "../brokers/kafka/under-test.ts";
import * as jetStream from "../brokers/nats/under-test.ts";
import * as rabbit from "../brokers/rabbitmq/under-test.ts";
import { assertRequired, brokerKinds, type BrokerKind } from "../support/brokers/broker-server.ts";
import { startCluster, type BrokerCluster } from "./clusters/broker-cluster.ts";
import { caseTitle } from "../support/broker-suites.ts";

const START_MS = 400_000;

interface Suite {
  readonly row: string;
  readonly capabilities: Capabilities;
  readonly offers: readonly Hook[];
  /** Default: every case that the transport claims. */
  readonly only?: (skippedBefore: readonly string[], name: string) => boolean;
  readonly make: (url: string) => Promise<TransportUnderTest>;
}

const everyHook: readonly Hook[] = ["abandon", "cutConnections", "putForeign", "deadLetters"];
const natsSuite = { row: "B4", capabilities: nats().capabilities };

// NATS needs two rounds, as on a single node: a long lease shows what is given back, a short one what a death leaves.
const suites: Readonly<Record<BrokerKind, readonly Suite[]>> = {
  rabbitmq: [
    {
      row: "B3",
      capabilities: rabbit.capabilities,
      offers: everyHook,
      make: (url) => rabbit.underTest(url, "quorum"),
    },
  ],
  kafka: [{ row: "B2", capabilities: kafka.capabilities, offers: everyHook, make: kafka.underTest }],
  nats: [
    {
      ...natsSuite,
      offers: everyHook.filter((hook) => hook !== "abandon"),
      make: (url) => jetStream.underTest(url, 60_000),
    },
    {
      ...natsSuite,
      offers: ["abandon"],
      only: (skippedBefore, name) => skippedBefore.includes(name),
      make: (url) => jetStream.underTest(url, 3_000),
    },
  ],
};

describe.each(brokerKinds)("a cluster of three nodes (%s)", (kind) => {
  let cluster: BrokerCluster | undefined;
  let missing: string | undefined;

  beforeAll(async () => {
    const found = await startCluster(kind);
    if ("cluster" in found) cluster = found.cluster;
    else assertRequired(kind, (missing = found.missing));
  }, START_MS);

  afterAll(() => cluster?.stop());

  let skippedBefore: readonly string[] = [];
  for (const { row, capabilities, offers, only, make } of suites[kind]) {
    const before = skippedBefore;
    const skipped = exerciseTransport(
      {
        test: (name, run) => {
          if (only?.(before, name) === false) return;
          test(caseTitle(name, row), async ({ skip }) => {
            if (missing !== undefined) return skip(missing);
            return run();
          });
        },
      },
      () => make(cluster?.url ?? ""),
      { capabilities, offers },
    );
    skippedBefore = skipped.map(({ name }) => name);
  }
});
