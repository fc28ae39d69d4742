import { expect, test } from "vitest";
import { figure, report, chooseModes, ChaosRun, PERFECT, type Mode } from "./chaos-run.ts";
import { temporaryDatabase } from "../support/database.ts";

test.each(chooseModes<Mode>("broker", "hop"))(
  "G9: sessions cut at random end no process and lose nothing (%s)",
  async (mode) => {
    const { url } = await temporaryDatabase();
    const messages = figure(10_000);
    const cuts = figure(100);
    const run = await ChaosRun.begin({
      mode,
      url,
      messages,
      keys: 500,
      leaseMs: 2_000,
      brokerLatencyMs: 5,
    });
    await run.fleet.startWorkers(figure(4, 3));
    run.startLoad(figure(2, 1));
    let done = 0;
    for (let cut = 1; cut <= cuts; cut++) {
      await run.progress((messages * cut) / (cuts + 1));
      const fromMs = Date.now();
      done += await run.cutSession();
      run.fault("*", fromMs, Date.now());
    }
    const { outcome, messages: sent, duplicates } = await run.conclude();
    report(`cut sessions, ${mode}`, { messages: sent, faults: done, duplicates });
    expect(done).toBe(cuts);
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    if (mode === "hop") expect(duplicates).toBe(0);
  },
);
