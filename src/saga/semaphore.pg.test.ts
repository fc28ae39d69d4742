import { expect, test } from "vitest";
import { saga } from "sagabox";
import { z } from "zod";
import { sagaFixture } from "../../test/support/saga-fixture.ts";
import { until } from "../../test/support/relays.ts";

test("an instance keeps its permit for a step that runs alongside one that took no time", async () => {
  const { bus, pool } = await sagaFixture({ sagas: { pollInterval: 50, concurrency: 1 } });
  let [running, most] = [0, 0];
  const slow = async (): Promise<void> => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setTimeout(resolve, 30));
    running -= 1;
  };
  const none = { undo: { none: "a test" } };
  const input = z.object({ id: z.string() });
  const trip = saga("trip", { version: 1, input, key: (i) => i.id }).all("both", (g) =>
    g.run("quick", () => undefined, none).run("slow", slow, none),
  );
  bus.register(trip);
  await bus.transaction(async (tx) => {
    for (let n = 0; n < 8; n++) await bus.start(tx, trip, { id: `${n}` });
  });
  await bus.run();
  const open = "select from sagabox.saga_instance where status <> 'completed' or claimed_by is not null";
  await until(async () => (await pool.query(open)).rowCount === 0);
  expect(most).toBe(1);
});
