import { expect, test } from "vitest";
import {
  brokerKinds,
  startBroker,
  assertRequired,
  type BrokerServer,
} from "../support/brokers/broker-server.ts";
import { full, figure, report, ChaosRun, PERFECT } from "./chaos-run.ts";
import { until } from "./until.ts";
import { temporaryDatabase } from "../support/database.ts";

const time = (lengthMs: number): Promise<void> => {
  const endMs = Date.now() + lengthMs;
  return until("the time is over", () => Date.now() >= endMs, { timeoutMs: 2 * lengthMs + 60_000 });
};

/** Stands still for four fifths of the time, so that every answer comes late. */
async function slowly(server: BrokerServer, rounds: number): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    server.signal("SIGSTOP");
    await time(800).finally(() => server.signal("SIGCONT"));
    await time(200);
  }
}

// Quickly only NATS, which starts in no time.
test.for(full ? brokerKinds : (["nats"] as const))(
  "G11, P-06: a broker that is away for half a minute under load, and then slow, costs no message and no attempt (%s)",
  async (kind, { skip, onTestFinished }) => {
    const found = await startBroker(kind);
    if ("missing" in found) {
      assertRequired(kind, found.missing);
      return skip(found.missing);
    }
    const { server } = found;
    onTestFinished(() => server.stop());
    const { url } = await temporaryDatabase();
    const messages = figure(6_000);
    const run = await ChaosRun.begin({
      mode: kind,
      url,
      messages,
      keys: 500,
      leaseMs: 2_000,
      brokerUrl: server.url,
    });
    await run.fleet.startWorkers(figure(4, 2));
    run.startLoad(1);

    await run.progress(messages * 0.2);
    const downMs = Date.now();
    await server.kill();
    await time(figure(30_000, 5_000));
    await server.start();
    run.fault("*", downMs, Date.now());

    const before = (await run.countEffects()) ?? 0;
    await until("the flow resumes", async () => ((await run.countEffects()) ?? 0) > before, {
      timeoutMs: 120_000,
    });
    const slowMs = Date.now();
    await slowly(server, figure(20, 4));
    run.fault("*", slowMs, Date.now());

    const { outcome, messages: sent } = await run.conclude(full ? 180_000 : 60_000);
    report(`outage and slowness, ${server.version}`, {
      messages: sent,
      "seconds down": figure(30, 5),
      "seconds slow": figure(20, 4),
    });
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
  },
);
