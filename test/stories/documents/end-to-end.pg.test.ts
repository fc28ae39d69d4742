import { expect, test } from "vitest";
import { documentBus, TestEvent } from "./document-bus.ts";

// Scenarios of the design documents, under their names. Where the outcome differs on purpose, the test says why.

test("H4, test_end_to_end_flow: written, relayed, published, consumed", async () => {
  const { bus, transport, statuses } = await documentBus({ optimistic: false });
  const handled: number[] = [];
  bus.on(TestEvent, { consumer: "billing" }, async (message) => {
    handled.push(message.data.attempt);
  });
  await bus.run();
  await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: 7 }));
  await expect.poll(() => handled, { timeout: 10_000 }).toEqual([7]);
  await expect.poll(statuses).toEqual(["sent"]);
  expect(transport.published).toHaveLength(1);
});

// A worker that was killed leaves its lease and its lanes behind. No job has to find stuck rows and requeue them: when the
// lease is over, the lanes are free.
test("A8, H4, test_worker_crash_recovery: what a dead worker had claimed is sent by another", async () => {
  const { bus, pool, statuses, transport } = await documentBus({ optimistic: false });
  await pool.query(
    `insert into sagabox.member (id, scope, worker, lease_until) values ('dead', 0, 'dead', clock_timestamp() + interval '1 second')`,
  );
  await pool.query(
    "update sagabox.relay_lane set owner = 'dead', fence = fence + 1, token = 't', leased_at = clock_timestamp()",
  );
  await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: 1 }));
  expect(await statuses()).toEqual(["claimed"]);
  await bus.run();
  expect(transport.published).toEqual([]);
  await expect.poll(statuses, { timeout: 10_000 }).toEqual(["sent"]);
  expect(transport.published).toHaveLength(1);
});

test("H4, test_database_connection_loss: with every connection cut the worker resumes by itself", async () => {
  const { bus, pool, statuses, transport } = await documentBus({ optimistic: false });
  await bus.run();
  await expect.poll(async () => (await bus.health()).ok, { timeout: 10_000 }).toBe(true);
  await pool.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
  );
  await expect
    .poll(
      () =>
        bus
          .transaction((tx) => bus.publish(tx, TestEvent, { attempt: 1 }, { id: "after" }))
          .then(
            () => true,
            () => false,
          ),
      {
        timeout: 10_000,
      },
    )
    .toBe(true);
  await expect.poll(statuses, { timeout: 10_000 }).toEqual(["sent"]);
  expect(transport.published).toHaveLength(1);
});

// The documents charge a broker's outage to the messages, so a long one sends everything to the dead letters. Here
// nothing is charged: the destination rests, longer each time, and continues when the broker is back.
test("H4, test_broker_unavailable: an outage costs no attempts, and everything is sent when it is over", async () => {
  const { bus, statuses, rows, transport, observer } = await documentBus({ optimistic: false });
  await bus.run();
  transport.goDown();
  await bus.transaction((tx) => bus.publish(tx, TestEvent, { attempt: 1 }));
  const [first, second] = await observer.until("relay.paused", 2);
  expect(second?.delayMs).toBeGreaterThan(0);
  expect(first).toMatchObject({ reason: "unreachable" });
  expect(await rows("select attempts from sagabox.outbox")).toEqual([{ attempts: 0 }]);
  transport.comeUp();
  await expect.poll(statuses, { timeout: 15_000 }).toEqual(["sent"]);
});
