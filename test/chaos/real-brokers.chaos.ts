import { expect, test } from "vitest";
import { assertRequired, brokerKinds, startBroker } from "../support/brokers/broker-server.ts";
import { figure, full, report, ChaosRun, pickOne, PERFECT } from "./chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

const LEASE_MS = 2_000;

// Quickly only Kafka: the storm under sagas kills over RabbitMQ, the broker tests of NATS have a storm of their own.
test.for(full ? brokerKinds : (["kafka"] as const))(
  "G6, G11: kill -9 of workers and of the broker itself loses nothing, repeats no effect, keeps the order (%s)",
  async (kind, { skip, onTestFinished }) => {
    const found = await startBroker(kind);
    if ("missing" in found) {
      assertRequired(kind, found.missing);
      return skip(found.missing);
    }
    const { server } = found;
    onTestFinished(() => server.stop());
    const { url } = await temporaryDatabase();
    const messages = figure(20_000);
    const [workerKills, brokerKills] = [figure(20), figure(5)];
    const kills = workerKills + brokerKills;
    const run = await ChaosRun.begin({
      mode: kind,
      url,
      messages,
      keys: 500,
      leaseMs: LEASE_MS,
      brokerUrl: server.url,
      failures: 0.02,
    });
    await run.fleet.startWorkers(4);
    run.startLoad();
    const brokerTurns = new Set(
      Array.from({ length: brokerKills }, (_, n) => Math.ceil(((n + 0.5) * kills) / brokerKills)),
    );
    let brokerFell = 0;
    for (let kill = 1; kill <= kills; kill++) {
      await run.progress((messages * kill) / (kills + 1));
      const fromMs = Date.now();
      if (brokerTurns.has(kill)) {
        await server.kill();
        await server.start();
        run.fault("*", fromMs, Date.now());
        brokerFell += 1;
        continue;
      }
      const victim = await run.victim();
      run.fault(victim.id, fromMs);
      await run.fleet.kill(victim);
      run.fleet.startWorker();
      if (kill % 5 === 0) await run.replaceLoad(pickOne(run.fleet.loads));
    }
    const { outcome, messages: sent } = await run.conclude(full ? 180_000 : 60_000);
    report(`kill -9, ${server.version}`, {
      messages: sent,
      "workers killed": workerKills,
      "broker killed": brokerFell,
    });
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    expect(brokerFell).toBe(brokerKills);
  },
);
