import { expect, test } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";
import { CrashLedger } from "./crash-ledger.ts";

const LEASE_MS = 2_000;

const OrderPlaced = event("order.placed", { schema: z.object({}) });

async function setup() {
  const harness = await consumers({ leaseMs: LEASE_MS });
  // Right after a start of the server nothing counts as a crash: all sessions ended then.
  await expect
    .poll(
      () =>
        harness.rows(
          `select 1 where pg_postmaster_start_time() < clock_timestamp() - interval '${LEASE_MS} ms'`,
        ),
      { timeout: 60_000 },
    )
    .toHaveLength(1);
  const dead = (member: string, ids: string[], alone = false) =>
    harness.rows(
      "insert into sagabox.running (member, consumer, event_ids, alone) values ($1, 'billing', $2, $3)",
      [member, ids, alone],
    );
  const suspects = () => harness.rows("select event_id, crashes from sagabox.suspect order by 1");
  return { harness, dead, suspects };
}

test("messages listed by a dead process are suspects; only one that ran alone counts a crash; handled ones are cleared", async () => {
  const { harness, dead, suspects } = await setup();
  await harness.rows(
    "insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type) values ('billing', 'done', 't', 'e')",
  );
  await dead("gone-1", ["a", "b", "done"]);
  await dead("gone-2", ["b"], true);
  await harness.ledger?.start();
  expect(await suspects()).toEqual([
    { event_id: "a", crashes: 0 },
    { event_id: "b", crashes: 1 },
  ]);
  await dead("gone-3", ["b"], true);
  await harness.ledger?.recordCrashes();
  expect((await suspects())[1]).toEqual({ event_id: "b", crashes: 2 });
  expect(harness.observer.of("consumer.suspect").at(-1)).toEqual({
    consumer: "billing",
    id: "b",
    crashes: 2,
  });
});

test("a live process causes no suspects, and a stopped one leaves no rows", async () => {
  const { harness, suspects } = await setup();
  await harness.ledger?.start();
  await harness.ledger?.listInFlight("billing", ["a"]);
  const other = new CrashLedger({ engine: harness.engine, worker: "other", leaseMs: LEASE_MS });
  await other.start();
  expect(await suspects()).toEqual([]);
  await other.stop();
  await harness.ledger?.stop();
  expect(await harness.rows("select 1 from sagabox.running union all select 1 from sagabox.member")).toEqual(
    [],
  );
});

test("listing detects a dead process before its messages run again", async () => {
  const { harness, dead } = await setup();
  await harness.ledger?.start();
  await dead("gone", ["a"], true);
  const suspects = await harness.ledger?.listInFlight("billing", ["a", "b"]);
  expect(suspects).toEqual(new Map([["a", 1]]));
});

test("a suspect runs alone in the process, and is cleared after success", async () => {
  const { harness, dead, suspects } = await setup();
  await dead("gone", ["s1", "s2"]);
  let running = 0;
  const beside = new Map<string, number>();
  for (const consumer of ["billing", "mail"]) {
    harness.registry.on(OrderPlaced, { consumer }, async (message, { tx }) => {
      running += 1;
      beside.set(`${consumer} ${message.id}`, running);
      await tx.query("select pg_sleep(0.005)");
      beside.set(
        `${consumer} ${message.id}`,
        Math.max(running, beside.get(`${consumer} ${message.id}`) ?? 0),
      );
      running -= 1;
    });
  }
  await harness.start();
  await harness.publish(...["m1", "m2", "s1", "m3", "s2", "m4"].map((id) => aMessage({ id })));
  await harness.observer.until("consumer.processed", 12);
  expect([beside.get("billing s1"), beside.get("billing s2")]).toEqual([1, 1]);
  expect(Math.max(...beside.values())).toBeGreaterThan(1);
  expect(await suspects()).toEqual([]);
});

test("a message that killed its process too often is dead-lettered without another run", async () => {
  const { harness, suspects } = await setup();
  await harness.rows(
    "insert into sagabox.suspect (consumer, event_id, crashes) values ('billing', 'killer', 2)",
  );
  let runs = 0;
  harness.registry.on(OrderPlaced, { consumer: "billing", maxCrashes: 2 }, () => void (runs += 1));
  await harness.start();
  await harness.publish(aMessage({ id: "killer" }), aMessage({ id: "innocent" }));
  await harness.observer.until("dead_letter.buried");
  await harness.observer.until("consumer.processed");
  expect(runs).toBe(1);
  expect(await harness.deadLetters()).toMatchObject([
    { messageId: "killer", reason: "poison", errorType: "MESSAGE_KILLS_PROCESS" },
  ]);
  expect(await suspects()).toEqual([]);
});

test("one statement lists many messages", async () => {
  const { harness } = await setup();
  let writes = 0;
  const { ledger } = harness;
  const list = ledger?.listInFlight.bind(ledger);
  if (ledger !== undefined && list !== undefined) {
    ledger.listInFlight = (consumer, ids) => {
      writes += 1;
      return list(consumer, ids);
    };
  }
  harness.registry.on(
    OrderPlaced,
    { consumer: "billing", concurrency: 8, prefetch: 40 },
    async (_, { tx }) => {
      await tx.query("select 1");
    },
  );
  await harness.start();
  await harness.publish(...Array.from({ length: 200 }, () => aMessage()));
  await harness.observer.until("consumer.processed", 200);
  expect(writes).toBeLessThan(40);
});
