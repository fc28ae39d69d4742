import pg from "pg";
import { expect, test } from "vitest";
import { brokerKinds, startBroker, assertRequired } from "../support/brokers/broker-server.ts";
import type { ChaosChild } from "./fleet.ts";
import { figure, full, report, ChaosRun, PERFECT, type Mode } from "./chaos-run.ts";
import { until } from "./until.ts";
import { temporaryDatabase } from "../support/database.ts";
import { Wire } from "../support/wire.ts";

const LEASE_MS = 2_000;
/** A connection that is being opened when the wire goes silent is given up after ten seconds. */
const RETURN = { timeoutMs: 120_000 };

const leases = (count: number): Promise<void> => {
  const endMs = Date.now() + count * LEASE_MS;
  return until("the time is over", () => Date.now() >= endMs, { timeoutMs: count * LEASE_MS + 60_000 });
};

/** Needs a load that lasts: once all messages are handled there is no flow left to see. */
async function flowResumes(run: ChaosRun): Promise<void> {
  const before = (await run.countEffects()) ?? 0;
  await until("the flow resumes", async () => ((await run.countEffects()) ?? 0) > before, RETURN);
}

/** As after a failover to a standby: all connections end, and new ones may only read. */
async function readOnlyPhase(run: ChaosRun, url: string, name: string): Promise<void> {
  const admin = new URL(url);
  admin.pathname = "/postgres";
  const client = new pg.Client({ connectionString: admin.href });
  await client.connect();
  try {
    await client.query(`alter database ${name} set default_transaction_read_only = on`);
    const { rows } = await client.query<{ now: string }>("select clock_timestamp()::text as now");
    await until("no session is left that can write", () => run.cutSessionsBefore(rows[0]?.now ?? ""));
    await leases(2);
    await client.query(`alter database ${name} reset default_transaction_read_only`);
  } finally {
    await client.end();
  }
}

test.for<Mode>(full ? ["hop", ...brokerKinds] : ["hop"])(
  "G10, G13: connections that go silent and a read-only phase cost no message, no attempt and no order (%s)",
  async (mode, { skip, onTestFinished }) => {
    const found = mode === "hop" || mode === "broker" ? undefined : await startBroker(mode);
    if (found !== undefined && "missing" in found) {
      assertRequired(mode, found.missing);
      return skip(found.missing);
    }
    if (found !== undefined) onTestFinished(() => found.server.stop());
    const { url, name } = await temporaryDatabase({ leakGuard: false });
    const messages = figure(6_000);
    const silences = figure(6, 1);
    const run = await ChaosRun.begin({
      mode,
      url,
      messages,
      keys: 500,
      leaseMs: LEASE_MS,
      ...(found === undefined ? {} : { brokerUrl: found.server.url }),
    });
    const wires = new Map<ChaosChild, Wire>();
    for (let n = 0; n < figure(4, 3); n++) {
      const wire = await Wire.to(url);
      onTestFinished(() => wire.close());
      wires.set(run.fleet.startWorker("worker", { url: wire.url }), wire);
    }
    await run.fleet.allReady();
    const endLoad = run.startSteadyLoad();

    for (let silence = 1; silence <= silences; silence++) {
      await run.progress((messages * silence) / (silences + 3));
      const victim = await run.victim();
      const wire = wires.get(victim);
      const fromMs = Date.now();
      wire?.swallow();
      await leases(3);
      await until("its lanes are taken", () => run.isWithoutLanes(victim), RETURN);
      wire?.heal();
      await until("it is back", async () => !(await run.isWithoutLanes(victim)), RETURN);
      run.fault(victim.id, fromMs, Date.now());
    }

    await run.progress((messages * (silences + 1)) / (silences + 3));
    const silentMs = Date.now();
    for (const wire of wires.values()) wire.swallow();
    await leases(3);
    for (const wire of wires.values()) wire.heal();
    await flowResumes(run);
    run.fault("*", silentMs, Date.now());

    await run.progress((messages * (silences + 2)) / (silences + 3));
    const readOnlyMs = Date.now();
    await readOnlyPhase(run, url, name);
    await flowResumes(run);
    run.fault("*", readOnlyMs, Date.now());

    await run.progress(messages);
    await endLoad();
    const { outcome, messages: sent, duplicates } = await run.conclude(full ? 180_000 : 90_000);
    report(`silent database, ${mode}`, { messages: sent, silences: silences + 1, duplicates });
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    if (mode === "hop") expect(duplicates).toBe(0);
  },
);
