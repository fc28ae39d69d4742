import pg from "pg";
import { createBus } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { assertRequired, startBroker } from "../support/brokers/broker-server.ts";
import { brokerTransport } from "../support/brokers/broker-transport.ts";
import { figure, full, keepEvidence, everyMode, report, pickOne } from "./chaos-run.ts";
import { ChaosFleet } from "./fleet.ts";
import { FATES, judgeTrips, LEDGER, tripSagas } from "./trip-saga.ts";
import { until } from "./until.ts";
import { temporaryDatabase } from "../support/database.ts";

test.for([
  { transportName: "postgres" as const, kills: figure(40) },
  ...(everyMode ? [{ transportName: "rabbitmq" as const, kills: figure(20) }] : []),
])(
  "F1, I-13: kill -9 under running sagas: each ends, each step is kept or undone exactly once ($transportName)",
  async ({ transportName, kills }, { skip }) => {
    const found = transportName === "postgres" ? undefined : await startBroker(transportName);
    if (found !== undefined && "missing" in found) {
      assertRequired(transportName, found.missing);
      return skip(found.missing);
    }
    if (found !== undefined) onTestFinished(() => found.server.stop());
    const broker =
      found === undefined ? {} : { broker: { kind: "rabbitmq" as const, url: found.server.url } };
    const { url } = await temporaryDatabase();
    const pool = new pg.Pool({ connectionString: url, max: 10 });
    pool.on("error", () => undefined);
    const fleet = new ChaosFleet({
      url,
      leaseMs: 2_000,
      brokerPort: undefined,
      optimisticTimeoutMs: 2_000,
      ...broker,
    });
    onTestFinished(async () => {
      await fleet.killAll();
      await pool.end();
    });
    const transport =
      found === undefined
        ? {}
        : { transport: brokerTransport("rabbitmq", found.server.url, { quickly: true }) };
    const bus = createBus({ service: "trips", database: pool, log: false, ...transport });
    await bus.migrate();
    await pool.query(LEDGER);
    const { hasty, patient } = tripSagas(pool, "harness");
    bus.register(hasty, patient);
    // Only trips with a slow car have a short timeout: otherwise most of a thousand would time out in the queue.
    const start = (tripId: string, fate: (typeof FATES)[number]) =>
      bus.transaction((tx) => bus.start(tx, fate === "slow car" ? hasty : patient, { tripId, fate }));
    await fleet.startWorkers(3, "saga-worker");

    const trips = figure(1_000);
    const pickFate = (nr: number): (typeof FATES)[number] => FATES[nr % FATES.length] ?? "good";
    const good = Array.from({ length: trips }, (_, nr) => pickFate(nr)).filter(
      (fate) => fate === "good",
    ).length;
    const countEnded = async (): Promise<number> => {
      const sql = "select count(*)::integer as n from sagabox.saga_instance where completed_at is not null";
      return (await pool.query<{ n: number }>(sql)).rows[0]?.n ?? 0;
    };
    for (let first = 0; first < trips; first += 10) {
      await Promise.all(
        Array.from({ length: Math.min(10, trips - first) }, (_, n) =>
          start(`t${first + n}`, pickFate(first + n)),
        ),
      );
    }
    for (let kill = 1; kill <= kills; kill++) {
      await until(
        "some more trips have ended",
        async () => (await countEnded()) >= (trips * kill) / (kills + 2),
        {
          timeoutMs: 300_000,
        },
      );
      await until(
        "enough workers are ready",
        () => fleet.workers.filter((child) => child.isReady).length >= 2,
      );
      const victim = pickOne(fleet.workers.filter((child) => child.isReady));
      await fleet.kill(victim);
      fleet.startWorker("saga-worker");
    }
    const all = until("every saga has ended", async () => (await countEnded()) === trips, {
      timeoutMs: full ? 300_000 : 90_000,
    }).then(
      () => "all ended",
      (error: Error) => error.message,
    );
    const ending = await all;
    await bus.stop();
    const wrong = await judgeTrips(pool);
    if (wrong.length > 0 || ending !== "all ended") {
      const open = await pool.query(
        "select * from sagabox.saga_instance where completed_at is null limit 20",
      );
      keepEvidence(wrong, open.rows, fleet.log.slice(-200));
    }
    const counts = await pool.query<{ status: string; n: number }>(
      "select status, count(*)::integer as n from sagabox.saga_instance group by 1 order by 1",
    );
    report(`sagas, kill -9, ${transportName}`, {
      sagas: trips,
      "workers killed": kills,
      ...Object.fromEntries(counts.rows.map(({ status, n }) => [status, n])),
    });
    const completed = counts.rows.find(({ status }) => status === "completed")?.n ?? 0;
    expect(ending).toBe("all ended");
    expect(wrong).toEqual([]);
    // No good trip is given up for being slow. Only work that was held by several dead workers, one after the
    // other, is suspected and given up, and that is rare.
    expect(completed).toBeGreaterThanOrEqual(Math.floor(good * 0.9));
    expect(completed).toBeLessThanOrEqual(good);
    expect(fleet.unexpected).toEqual([]);
  },
);
