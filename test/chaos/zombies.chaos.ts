import { expect, test } from "vitest";
import { figure, full, report, chooseModes, ChaosRun, pickOne, PERFECT, type Mode } from "./chaos-run.ts";
import { lateTakeOvers, takeOverFigures } from "./take-over.ts";
import { until } from "./until.ts";
import { temporaryDatabase } from "../support/database.ts";

const LEASE_MS = 2_000;

test.each(chooseModes<Mode>("hop", "broker"))(
  "G7, I-10: a worker stopped past its lease writes nothing stale when it continues (%s)",
  async (mode) => {
    const { url } = await temporaryDatabase();
    const messages = figure(10_000);
    const stops = figure(20);
    const run = await ChaosRun.begin({
      mode,
      url,
      messages,
      keys: 500,
      leaseMs: LEASE_MS,
      brokerLatencyMs: 5,
    });
    await run.fleet.startWorkers(figure(4, 3));
    run.startLoad(figure(2, 1));
    for (let stop = 1; stop <= stops; stop++) {
      await run.progress((messages * stop) / (stops + 1));
      // Publishers are stopped too, with rows leased to themselves.
      const zombie = stop % 4 === 0 ? pickOne(run.fleet.loads) : await run.victim();
      const fromMs = Date.now();
      zombie.signal("SIGSTOP");
      const length = LEASE_MS * (1.5 + 1.5 * Math.random());
      await until("the stop is over", () => Date.now() - fromMs >= length);
      await until("its lanes are taken", () => run.isWithoutLanes(zombie));
      run.fault(zombie.id, fromMs, Date.now());
      zombie.signal("SIGCONT");
      await until("it is back", async () => !zombie.works || !(await run.isWithoutLanes(zombie)));
    }
    const { outcome, messages: sent, duplicates, takeOvers } = await run.conclude();
    report(`zombies, ${mode}`, {
      messages: sent,
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
