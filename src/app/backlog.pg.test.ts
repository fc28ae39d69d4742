import { createBus, event, permanent, saga } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";
import { until } from "../../test/support/relays.ts";
import { pgDatabase } from "../storage/index.ts";
import { postgres } from "../transports/postgres/index.ts";
import { Backlog } from "./periodic-services.ts";

const Id = z.object({ id: z.string() });
const Placed = event("gauge.placed", { schema: Id });
const waiting = saga("gauge-waiting", { version: 1, input: Id, key: ({ id }) => id }).waitFor(
  "placed",
  event("gauge.never", { schema: Id, key: ({ id }) => id }),
  { timeout: "1d" },
);

test("what waits in the queue of PostgreSQL is shown for the slowest group of its topic, and 0 when it is handled", async () => {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "gauges", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  bus.on(Placed, { consumer: "gauge-slow" }, () => opened);
  bus.on(Placed, { consumer: "gauge-quick" }, () => undefined);
  await bus.run();
  await bus.transaction(async (tx) => {
    for (let n = 0; n < 12; n++) await tx.publish(Placed, { id: String(n) });
  });
  const rows = async () => (await pool.query("select 1 from sagabox.queue")).rowCount;
  await until(async () => (await rows()) === 12);
  const observer = new RecordingObserver();
  const backlog = new Backlog({
    database: pgDatabase(pool),
    settings: { schema: "sagabox" },
    relay: { inFlight: 0 },
    observer,
    transport: postgres(),
  });
  // It looks when it is started, and counts rows every sixth time.
  const look = async (times: number) => {
    await backlog.start();
    await observer.until("backlog.measured", times);
    await backlog.stop();
  };
  await look(1);
  open();
  await until(async () => (await rows()) === 0);
  for (let times = 2; times <= 7; times++) await look(times);
  const topic = "events.gauge.placed";
  expect(observer.of("depth.measured")).toEqual([
    { topic, depth: 12 },
    { topic, depth: 0 },
  ]);
});

test("with the defaults a worker whose messages PostgreSQL carries shows its depth", async () => {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const make = () => {
    const bus = createBus({ service: "gauges", database: pool, log: false });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const first = make();
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  onTestFinished(() => open());
  first.on(Placed, { consumer: "gauge-slow" }, () => opened);
  await first.run();
  await first.transaction((tx) => tx.publish(Placed, { id: "1" }));
  await until(async () => (await pool.query("select 1 from sagabox.queue")).rowCount === 1);
  const second = make(); // looks at once, when it starts
  await second.run();
  await until(() => second.metrics().includes('transport_depth{topic="events.gauge.placed"} 1\n'));
  open();
});

test("a running worker shows its pool, its process, open sagas, open dead letters and lanes", async () => {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const make = () => {
    const bus = createBus({ service: "gauges", database: pool, log: false });
    bus.register(waiting);
    bus.on(Placed, { consumer: "gauge-mail" }, () => {
      throw permanent("no such address");
    });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const first = make();
  await first.run();
  await first.transaction(async (tx) => {
    await tx.publish(Placed, { id: "1" });
    await first.start(tx, waiting, { id: "1" });
  });
  await until(async () => (await first.deadLetters.list()).length === 1);
  const bus = make(); // looks at once, when it starts
  await bus.run();
  const shows = (line: string) => bus.metrics().split("\n").includes(line);
  await until(async () => shows('dead_letters_open{consumer_name="gauge-mail",event_type="gauge.placed"} 1'));
  await until(async () => shows('sagas_open{status="running"} 1'));
  expect(shows('sagas_open{status="failed"} 0')).toBe(true);
  expect(shows("sagas_stuck 0")).toBe(true);
  expect(shows('lanes_unowned{scope="outbox"} 0')).toBe(true);
  expect(shows("database_pool_connections_max 30")).toBe(true);
  expect(bus.metrics()).toMatch(/^process_resident_memory_bytes [1-9]\d+$/m);
});
