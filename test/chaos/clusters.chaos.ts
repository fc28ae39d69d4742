import { expect, test } from "vitest";
import { assertRequired, brokerKinds } from "../support/brokers/broker-server.ts";
import { findLeader, startCluster, untilWhole, type BrokerCluster } from "./clusters/broker-cluster.ts";
import { figure, report, ChaosRun, PERFECT, type Conclusion } from "./chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

const LEASE_MS = 2_000;
const KILLS = 5;
const EFFECTS_WITHOUT_A_NODE = 200;
/** What a worker logs if it cannot consume or publish because of the broker. */
const INTERRUPTIONS: readonly string[] = ["consumer.interrupted", "breaker.opened"];

test.for(brokerKinds)(
  "G6, G11: kill -9 of the leader of a three-node cluster loses nothing, repeats no effect, keeps the order (%s)",
  async (kind, { skip, onTestFinished }) => {
    const found = await startCluster(kind);
    if ("missing" in found) {
      assertRequired(kind, found.missing);
      return skip(found.missing);
    }
    const { cluster } = found;
    onTestFinished(() => cluster.stop());
    const { url } = await temporaryDatabase();
    const messages = figure(2_000);
    const run = await ChaosRun.begin({
      mode: kind,
      url,
      messages,
      keys: 200,
      leaseMs: LEASE_MS,
      brokerUrl: cluster.url,
      failures: 0.02,
    });
    const beganMs = Date.now();
    await run.fleet.startWorkers(3);
    await untilWhole(cluster);
    const endLoad = run.startSteadyLoad();
    await run.progress(messages / KILLS);
    // All clients of a new RabbitMQ cluster connect to its first node, which then leads every queue.
    if (kind === "rabbitmq") expect(await interruptionsWithoutFollower(run, cluster)).toEqual([]);
    for (let kill = 0; kill < KILLS; kill++) {
      await run.progress((messages * (kill + 1)) / KILLS);
      const leader = await findLeader(cluster, kill);
      const fromMs = Date.now();
      await leader.kill();
      await workWithoutNode(run);
      await leader.start();
      await untilWhole(cluster);
      run.fault("*", fromMs, Date.now());
    }
    await endLoad();
    const { outcome, messages: sent, log } = await run.conclude(180_000);
    report(`kill -9 of leaders, ${cluster.version}`, {
      messages: sent,
      "leaders killed": KILLS,
      "effects lost or repeated": count(outcome, "I-03"),
      "effects out of order": count(outcome, "I-06"),
      seconds: Math.round((Date.now() - beganMs) / 1_000),
    });
    report(`log, ${cluster.version}`, log);
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    // During an election the server answers as if there were no JetStream and no stream.
    const mistaken = run.fleet.log.filter(({ text }) =>
      /JetStream is (off|not enabled)|was deleted/.test(text),
    );
    expect(mistaken).toEqual([]);
  },
);

function count({ violations }: Conclusion["outcome"], invariant: string): number {
  return violations.find((violation) => violation.invariant.startsWith(invariant))?.count ?? 0;
}

/** Waits for the election and for messages after it, without the node that was killed. */
async function workWithoutNode(run: ChaosRun): Promise<void> {
  const effects = (await run.countEffects()) ?? 0;
  await run.effectsBeyond(effects + EFFECTS_WITHOUT_A_NODE);
}

/** Kills a node that leads nothing and returns what the workers logged about it until it was back. */
async function interruptionsWithoutFollower(run: ChaosRun, cluster: BrokerCluster): Promise<string[]> {
  await findLeader(cluster);
  const leaders = await cluster.leaders();
  const follower = cluster.nodes.findLast((node) => !leaders.includes(node));
  if (follower === undefined) throw new Error("Every node leads something.");
  const before = new Set(run.fleet.log);
  await follower.kill();
  await workWithoutNode(run);
  await follower.start();
  await untilWhole(cluster);
  const later = run.fleet.log.filter((line) => !before.has(line));
  return later.filter(({ event }) => INTERRUPTIONS.includes(event)).map(({ text }) => text);
}
