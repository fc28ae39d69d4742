import { expect, test } from "vitest";
import { assertRequired } from "../support/brokers/broker-server.ts";
import { brokerKinds } from "../support/brokers/broker-kinds.ts";
import { leaderOf, startCluster, untilWhole } from "../support/brokers/cluster/broker-cluster.ts";
import { figure, report } from "../support/chaos-figures.ts";
import { ChaosRun, PERFECT } from "../support/chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

const LEASE_MS = 2_000;
const KILLS = 5;

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
    await run.fleet.startWorkers(3);
    await untilWhole(cluster);
    const endLoad = run.startSteadyLoad();
    for (let kill = 0; kill < KILLS; kill++) {
      await run.progress((messages * (kill + 1)) / KILLS);
      const leader = await leaderOf(cluster, kill);
      const fromMs = Date.now();
      await leader.kill();
      // The election and the messages after it happen without the node.
      const effects = (await run.effects()) ?? 0;
      await run.effectsBeyond(effects + 200);
      await leader.start();
      await untilWhole(cluster);
      run.fault("*", fromMs, Date.now());
    }
    await endLoad();
    const { outcome, messages: sent, log } = await run.conclude(180_000);
    report(`kill -9 of leaders, ${cluster.version}`, { messages: sent, "leaders killed": KILLS });
    report(`log, ${cluster.version}`, log);
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
  },
);
