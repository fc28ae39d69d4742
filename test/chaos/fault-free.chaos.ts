import { expect, test } from "vitest";
import { figure, report, chooseModes, ChaosRun, PERFECT, type Mode } from "./chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

// Long leases: on a machine that stands still for two seconds a short one runs out, and that is a fault.
const patient = { leaseMs: 10_000, optimisticTimeoutMs: 10_000 };

test.each(chooseModes<Mode>("broker", "hop"))(
  "G17, I-28: without a fault nothing is sent twice, lost or out of order (%s)",
  async (mode) => {
    const { url } = await temporaryDatabase();
    const run = await ChaosRun.begin({
      mode,
      url,
      messages: figure(50_000, mode === "hop" ? 5_000 : 2_000),
      keys: 500,
      ...patient,
    });
    await run.fleet.startWorkers(4);
    const began = performance.now();
    run.startLoad();
    const { outcome, messages, duplicates, log } = await run.conclude(600_000);
    const rate = Math.round((messages * 1_000) / (performance.now() - began));
    report(`fault-free, ${mode}`, { messages, faults: 0, duplicates, "messages/s": rate });
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    expect({ duplicates, log }).toEqual({ duplicates: 0, log: {} });
  },
);
