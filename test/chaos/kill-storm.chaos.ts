import { expect, test } from "vitest";
import { figure, full, report, chooseModes, ChaosRun, pickOne, PERFECT, type Mode } from "./chaos-run.ts";
import { lateTakeOvers, takeOverFigures } from "./take-over.ts";
import { temporaryDatabase } from "../support/database.ts";

const LEASE_MS = 2_000;

test.each(chooseModes<Mode>("hop", "broker"))(
  "G6, G25: kill -9 of random workers under load loses nothing, repeats no effect, keeps the order (%s)",
  async (mode) => {
    const { url } = await temporaryDatabase();
    const messages = figure(30_000);
    const kills = figure(30);
    const run = await ChaosRun.begin({
      mode,
      url,
      messages,
      keys: 500,
      leaseMs: LEASE_MS,
      brokerLatencyMs: 5,
    });
    await run.fleet.startWorkers(4);
    run.startLoad();
    for (let kill = 1; kill <= kills; kill++) {
      await run.progress((messages * kill) / (kills + 1));
      const victim = await run.victim();
      run.fault(victim.id, Date.now());
      await run.fleet.kill(victim);
      run.fleet.startWorker();
      // Publishers die too, with rows leased to themselves.
      if (kill % 3 === 0) await run.replaceLoad(pickOne(run.fleet.loads));
    }
    const { outcome, duplicates, takeOvers, ...rest } = await run.conclude();
    report(`kill -9, ${mode}`, {
      messages: rest.messages,
      faults: run.faults.length,
      duplicates,
      ...takeOverFigures(takeOvers),
    });
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    // A figure of time is judged in the full proof; the quick one must not fail because a machine is busy.
    if (full) expect(lateTakeOvers(takeOvers, LEASE_MS)).toEqual([]);
    if (mode === "hop") expect(duplicates).toBe(0);
  },
);
