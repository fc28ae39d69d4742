import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { until } from "../../test/support/relays.ts";
import { pgDatabase } from "../storage/index.ts";
import { prometheus } from "../telemetry/index.ts";
import { MemoryTransport } from "../testing/index.ts";
import type { Lag, PlannedGroup } from "../transport/index.ts";
import { LagWatch, readStoredLags } from "./lag-watch.ts";

const groups: readonly PlannedGroup[] = [
  { service: "shop", group: "mail", ordered: true, topics: [{ topic: "events.order", kind: "event" }] },
];

/** A broker that reports these lags, or fails. */
class ReportingTransport extends MemoryTransport {
  asked = 0;
  reported: readonly Lag[] | Error = [];

  override async lags(): Promise<readonly Lag[]> {
    this.asked += 1;
    if (this.reported instanceof Error) throw this.reported;
    return this.reported;
  }
}

const lag = (waiting: Lag["waiting"], oldestAgeSeconds: Lag["waiting"]): Lag => ({
  group: "mail",
  topic: "events.order",
  waiting,
  oldestAgeSeconds,
});
const measured = (waiting: number | null, oldestAgeMs: number | null) => ({
  consumer: "mail",
  topic: "events.order",
  waiting,
  oldestAgeMs,
});

async function setUp() {
  const { pool } = await temporaryDatabase({ migrated: true, max: 10 });
  const database = pgDatabase(pool);
  const startWatch = async (transport: ReportingTransport, observer = new RecordingObserver()) => {
    const watch = new LagWatch({ database, schema: "sagabox", transport, groups, observer, everyMs: 50 });
    onTestFinished(() => watch.stop());
    await watch.start();
    return { watch, observer };
  };
  return { pool, database, startWatch };
}

test("what the transport reports is emitted and stored; what it does not report is unknown", async () => {
  const { database, startWatch } = await setUp();
  const transport = new ReportingTransport();
  const { observer } = await startWatch(transport);
  const last = () => observer.of("lag.measured").at(-1);
  await until(() => last() !== undefined);
  expect(last()).toEqual(measured(null, null));
  transport.reported = [lag(12, 3.5)];
  await until(() => last()?.waiting === 12);
  expect(last()).toEqual(measured(12, 3_500));
  expect(await readStoredLags(database, "sagabox")).toEqual([
    {
      consumer: "mail",
      transport: "memory",
      ageMs: expect.any(Number),
      lags: [{ topic: "events.order", waiting: 12, oldestAgeSeconds: 3.5 }],
    },
  ]);
  transport.reported = [lag(4, "unknown")];
  await until(() => last()?.waiting === 4);
  expect(last()).toEqual(measured(4, null));
});

test("when the broker does not answer, the metric disappears instead of showing 0 or the last value", async () => {
  const { startWatch } = await setUp();
  const transport = new ReportingTransport();
  const observer = new RecordingObserver();
  const page = prometheus();
  const both = {
    emit: (...event: Parameters<RecordingObserver["emit"]>) => {
      observer.emit(...event);
      page.emit(...event);
    },
  };
  transport.reported = [lag(12, 3.5)];
  await startWatch(transport, both as RecordingObserver);
  const series = '{consumer_name="mail",topic="events.order"}';
  await until(() => page.text().includes(`consumer_lag_messages${series} 12\n`));
  expect(page.text()).toContain(`consumer_lag_oldest_age_seconds${series} 3.5\n`);
  transport.reported = new Error("the broker is down");
  await until(() => !page.text().includes("consumer_lag_messages{"));
  expect(page.text()).not.toContain("consumer_lag_oldest_age_seconds{");
  expect(observer.of("lag.unknown")[0]).toMatchObject({ error: "the broker is down" });
});

test("workers share a measurement: one asks the broker in each interval, and all emit it", async () => {
  const { pool, database, startWatch } = await setUp();
  const [one, other] = [new ReportingTransport(), new ReportingTransport()];
  one.reported = [lag(1, 0)];
  other.reported = [lag(1, 0)];
  const { observer } = await startWatch(one);
  await until(() => observer.of("lag.measured").length > 0);
  // A claim in the future stands for a worker that has just measured.
  await pool.query(
    "update sagabox.consumer_lag set claimed_at = now() + interval '1 hour', measured_at = now()",
  );
  const asked = one.asked;
  const second = await startWatch(other);
  await until(() => second.observer.of("lag.measured").length >= 1);
  expect(second.observer.of("lag.measured")[0]).toMatchObject({ consumer: "mail", waiting: 1 });
  expect(other.asked).toBe(0);
  expect(one.asked).toBeLessThanOrEqual(asked + 1);
  expect(await readStoredLags(database, "sagabox", ["other"])).toEqual([]);
});

test("a measurement that no worker renews is forgotten", async () => {
  const { pool, startWatch } = await setUp();
  await pool.query(
    `insert into sagabox.consumer_lag (consumer, transport, claimed_at, measured_at, lags)
     values ('mail', 'memory', now() + interval '1 hour', now(), '[{"topic":"events.order","waiting":3,"oldestAgeSeconds":1}]')`,
  );
  const { observer } = await startWatch(new ReportingTransport());
  await until(() => observer.of("lag.measured").at(-1)?.waiting === 3);
  await until(() => observer.of("lag.measured").at(-1)?.waiting === null);
  expect(observer.of("lag.measured").at(-1)).toEqual(measured(null, null));
});
