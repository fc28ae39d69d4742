import { expect, test } from "vitest";
import { figure, report, chooseModes, ChaosRun, PERFECT, type Mode } from "./chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

test.each(chooseModes<Mode>("hop", "broker"))(
  "G16, I-28: rolling restarts under load repeat nothing and log no trouble (%s)",
  async (mode) => {
    const { url } = await temporaryDatabase();
    const messages = figure(20_000, 1_000);
    const rounds = figure(10);
    const options = { messages, keys: 500, leaseMs: 10_000, optimisticTimeoutMs: 10_000 };
    const run = await ChaosRun.begin({ mode, url, brokerLatencyMs: 5, ...options });
    await run.fleet.startWorkers(figure(4, 3));
    run.startLoad(figure(2, 1));
    const exits: unknown[] = [];
    let worstMs = 0;
    for (let round = 0; round < rounds; round++) {
      await run.progress((messages * (round + 0.2)) / rounds);
      for (const worker of run.fleet.workers) {
        const began = performance.now();
        exits.push(await run.fleet.retire(worker));
        worstMs = Math.max(worstMs, performance.now() - began);
        await run.fleet.startWorker().ready;
      }
    }
    const { outcome, messages: sent, duplicates, log } = await run.conclude();
    report(`rolling restart, ${mode}`, {
      messages: sent,
      restarts: exits.length,
      duplicates,
      "worst drain ms": Math.round(worstMs),
    });
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    expect(exits).toEqual(exits.map(() => 0));
    expect({ duplicates, log }).toEqual({ duplicates: 0, log: {} });
  },
);
