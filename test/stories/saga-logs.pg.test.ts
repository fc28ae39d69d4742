import { isDeepStrictEqual } from "node:util";
import { expect, test } from "vitest";
import { permanent, refuse, saga } from "sagabox";
import { until } from "../support/relays.ts";
import { Order, sagaFixture } from "../support/saga-fixture.ts";

type Line = Readonly<Record<string, unknown>>;

test("G4: the log shows how each of two hundred sagas ended, and why those that turned back did", async () => {
  const log: Line[] = [];
  const write = (line: string) => void log.push(JSON.parse(line) as Line);
  const { bus, pool } = await sagaFixture({ log: { format: "json", write } });
  const order = saga("order", { version: 1, input: Order, key: (i) => i.orderId })
    .run("reserve", () => 1)
    .undo(({ input }) => {
      if (input.orderId.startsWith("stuck")) throw permanent("the shop is closed");
    })
    .run("pay", ({ input }) => {
      if (!input.orderId.startsWith("paid")) throw refuse("card declined");
    })
    .noUndo("nothing was paid");
  bus.register(order);
  await bus.run();
  const names = [
    ...Array.from({ length: 100 }, (_, n) => `paid-${n}`),
    ...Array.from({ length: 99 }, (_, n) => `declined-${n}`),
    "stuck",
  ];
  const ids = new Map<string, string>();
  await bus.transaction(async (tx) => {
    for (const orderId of names) ids.set(orderId, (await bus.start(tx, order, { orderId })).sagaId);
  });
  await until(async () => {
    const { rows } = await pool.query<{ status: string; count: number }>(
      "select status, count(*)::integer from sagabox.saga_instance group by status order by status",
    );
    return isDeepStrictEqual(
      rows.map(({ status, count }) => [status, count]),
      [
        ["compensated", 99],
        ["completed", 100],
        ["failed", 1],
      ],
    );
  }, 25_000);
  await bus.stop();
  const { rows } = await pool.query<{ id: string; trace_id: string }>(
    "select id, trace_id from sagabox.saga_instance",
  );
  const traces = new Map(rows.map(({ id, trace_id: trace }) => [id, trace]));
  const changes = log.filter(({ event }) => event === "saga.changed");
  expect(log.filter((line) => "suppressed" in line)).toEqual([]);
  for (const [key, id] of ids) {
    const own = changes.filter((line) => line["saga_id"] === id);
    const line = { level: "info", stream: "saga", type: "order", key, trace_id: traces.get(id) };
    const running = { ...line, from: "started", to: "running", step: "reserve", cause: "start" };
    const cause = 'step "pay" failed: card declined';
    if (key.startsWith("paid")) {
      expect(own).toMatchObject([
        running,
        { ...line, to: "completed", step: "pay", cause: expect.stringMatching(/^worker:/) },
      ]);
    } else if (key === "stuck") {
      expect(own).toMatchObject([
        running,
        { ...line, to: "compensating", step: "pay", cause },
        { ...line, level: "error", to: "failed", step: "reserve", cause: "the shop is closed" },
      ]);
    } else {
      expect(own).toMatchObject([
        running,
        { ...line, to: "compensating", step: "pay", cause },
        { ...line, to: "compensated", cause },
      ]);
    }
  }
});
