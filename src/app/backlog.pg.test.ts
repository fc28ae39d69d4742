import { createBus, event, permanent, saga } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";

const Id = z.object({ id: z.string() });
const Placed = event("gauge.placed", { schema: Id });
const waiting = saga("gauge-waiting", { version: 1, input: Id, key: ({ id }) => id }).waitFor(
  "placed",
  event("gauge.never", { schema: Id, key: ({ id }) => id }),
  { timeout: "1d" },
);

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
