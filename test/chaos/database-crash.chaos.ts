import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startEmbeddedPostgres, type EmbeddedPostgres } from "sagabox/embedded";
import { expect, onTestFinished, test } from "vitest";
import { figure, report, chooseModes, ChaosRun, PERFECT, type Mode } from "./chaos-run.ts";
import { until } from "./until.ts";

/** A cluster that keeps its promises: what it confirmed is still there after a crash. */
async function durableCluster(): Promise<EmbeddedPostgres> {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-crash-"));
  // As root the server runs under another account, which has to get through this folder.
  chmodSync(folder, 0o755);
  const settings = { max_connections: 200, shared_buffers: "64MB" };
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "data"), auth: "trust", settings });
  onTestFinished(async () => {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  return server;
}

test.each(chooseModes<Mode>("hop", "broker"))(
  "G8: after a crash of the database the flow resumes by itself and nothing is lost (%s)",
  async (mode) => {
    const server = await durableCluster();
    const messages = figure(10_000);
    const crashes = figure(10);
    const run = await ChaosRun.begin({ mode, url: server.url, messages, keys: 500, leaseMs: 2_000 });
    await run.fleet.startWorkers(figure(4, 3));
    run.startLoad(figure(2, 1));
    let worstMs = 0;
    for (let crash = 1; crash <= crashes; crash++) {
      await run.progress((messages * crash) / (crashes + 1));
      const fromMs = Date.now();
      await server.restart("immediate");
      const readyMs = Date.now();
      const before = await run.countEffects();
      await until("the flow resumes", async () => ((await run.countEffects()) ?? 0) > (before ?? Infinity));
      worstMs = Math.max(worstMs, Date.now() - readyMs);
      run.fault("*", fromMs, Date.now());
    }
    const { outcome, messages: sent, duplicates } = await run.conclude();
    report(`database crash, ${mode}`, {
      messages: sent,
      faults: crashes,
      duplicates,
      "worst resume ms": worstMs,
    });
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    expect(worstMs).toBeLessThanOrEqual(5_000);
    if (mode === "hop") expect(duplicates).toBe(0);
  },
);
