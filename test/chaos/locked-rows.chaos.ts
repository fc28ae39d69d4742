import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import {
  brokerKinds,
  startBroker,
  type BrokerKind,
  assertRequired,
} from "../support/brokers/broker-server.ts";
import { signedUrl } from "./child-contract.ts";
import { figure, full, report, ChaosRun, pickOne, PERFECT } from "./chaos-run.ts";
import { until } from "./until.ts";
import { temporaryDatabase } from "../support/database.ts";

const LEASE_MS = 2_000;
const HELD_MS = 3_000;
const PAUSE_MS = 50;

/** What a foreign session may lock; every lock lasts longer than a settle waits for it. */
const TARGETS = [
  "select 1 from sagabox.outbox where ctid = any(array(select ctid from sagabox.outbox order by random() limit 3)) for share",
  "select 1 from sagabox.queue where ctid = any(array(select ctid from sagabox.queue order by random() limit 3)) for update",
];

/** Locks random rows for seconds, again and again. Returns how often there was something to lock. */
async function lockAtRandom(url: string, isOver: () => boolean): Promise<number> {
  const client = new pg.Client({ connectionString: signedUrl(url, "harness"), application_name: "harness" });
  client.on("error", () => undefined);
  await client.connect();
  let locked = 0;
  try {
    while (!isOver()) {
      await client.query("begin");
      const { rowCount } = await client.query(pickOne(TARGETS));
      if ((rowCount ?? 0) > 0) {
        locked += 1;
        await pause(HELD_MS);
      }
      await client.query("rollback");
      await pause(PAUSE_MS);
    }
  } finally {
    await client.end();
  }
  return locked;
}

test.for<"hop" | BrokerKind>(full ? ["hop", ...brokerKinds] : ["hop"])(
  "foreign sessions that lock rows for seconds hold back single keys, lose nothing and repeat nothing (%s)",
  async (mode, { skip }) => {
    const found = mode === "hop" ? undefined : await startBroker(mode);
    if (found !== undefined && "missing" in found) {
      assertRequired(mode as BrokerKind, found.missing);
      return skip(found.missing);
    }
    onTestFinished(async () => found?.server.stop());
    const { url } = await temporaryDatabase();
    const messages = figure(20_000);
    const run = await ChaosRun.begin({
      mode,
      url,
      messages,
      keys: 500,
      leaseMs: LEASE_MS,
      ...(found !== undefined && { brokerUrl: found.server.url }),
    });
    await run.fleet.startWorkers(figure(4, 2));
    let isOver = false;
    onTestFinished(() => void (isOver = true));
    const fromMs = Date.now();
    const lockers = Array.from({ length: figure(4, 2) }, () => lockAtRandom(url, () => isOver));
    run.startLoad(figure(2, 1));
    // Others progress: the load ends only when nearly everything was handled, and locks are held all the while.
    await until(
      "nearly everything is handled under locks",
      async () => {
        return ((await run.countEffects()) ?? 0) >= messages;
      },
      { timeoutMs: full ? 600_000 : 120_000 },
    );
    isOver = true;
    const locks = (await Promise.all(lockers)).reduce((sum, count) => sum + count, 0);
    run.fault("*", fromMs, Date.now());
    const { outcome, messages: sent, duplicates } = await run.conclude(full ? 180_000 : 60_000);
    report(`locked rows, ${mode}`, { messages: sent, locks, duplicates });
    expect(locks).toBeGreaterThan(0);
    expect(outcome, JSON.stringify(outcome)).toEqual(PERFECT);
    if (mode === "hop") expect(duplicates).toBe(0);
  },
);

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
