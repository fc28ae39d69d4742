import { expect, test } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";
import { CrashLedger } from "./crash-ledger.ts";

const OrderPlaced = event("order.placed", { schema: z.object({}) });

async function setup() {
  const house = await consumers();
  const dead = (member: string, ids: string[], alone = false) =>
    house.rows(
      "insert into sagabox.running (member, consumer, event_ids, alone) values ($1, 'billing', $2, $3)",
      [member, ids, alone],
    );
  const suspects = () => house.rows("select event_id, crashes from sagabox.suspect order by 1");
  return { house, dead, suspects };
}

test("what a dead process had listed is suspect; only what ran alone is charged; what was finished is free", async () => {
  const { house, dead, suspects } = await setup();
  await house.rows(
    "insert into sagabox.consumer_inbox (consumer_name, event_id, source_topic, event_type) values ('billing', 'done', 't', 'e')",
  );
  await dead("gone-1", ["a", "b", "done"]);
  await dead("gone-2", ["b"], true);
  await house.ledger?.start();
  expect(await suspects()).toEqual([
    { event_id: "a", crashes: 0 },
    { event_id: "b", crashes: 1 },
  ]);
  await dead("gone-3", ["b"], true);
  await house.ledger?.recordCrashes();
  expect((await suspects())[1]).toEqual({ event_id: "b", crashes: 2 });
  expect(house.observer.of("consumer.suspect").at(-1)).toEqual({ consumer: "billing", id: "b", crashes: 2 });
});

test("a living process is no suspect, and one that leaves in good order leaves nothing", async () => {
  const { house, suspects } = await setup();
  await house.ledger?.start();
  await house.ledger?.listInFlight("billing", ["a"]);
  const other = new CrashLedger({ engine: house.engine, worker: "other" });
  await other.start();
  expect(await suspects()).toEqual([]);
  await other.stop();
  await house.ledger?.stop();
  expect(await house.rows("select 1 from sagabox.running union all select 1 from sagabox.member")).toEqual(
    [],
  );
});

test("listing notices a death that nobody has told about, before the message runs again", async () => {
  const { house, dead } = await setup();
  await house.ledger?.start();
  await dead("gone", ["a"], true);
  const suspects = await house.ledger?.listInFlight("billing", ["a", "b"]);
  expect(suspects).toEqual(new Map([["a", 1]]));
});

test("a suspect runs with nothing beside it in the process, and is free after it succeeded", async () => {
  const { house, dead, suspects } = await setup();
  await dead("gone", ["s1", "s2"]);
  let running = 0;
  const beside = new Map<string, number>();
  for (const consumer of ["billing", "mail"]) {
    house.registry.on(OrderPlaced, { consumer }, async (message, { tx }) => {
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
  await house.start();
  await house.publish(...["m1", "m2", "s1", "m3", "s2", "m4"].map((id) => aMessage({ id })));
  await house.observer.until("consumer.processed", 12);
  expect([beside.get("billing s1"), beside.get("billing s2")]).toEqual([1, 1]);
  expect(Math.max(...beside.values())).toBeGreaterThan(1);
  expect(await suspects()).toEqual([]);
});

test("a message that has killed its process too often is buried without running again", async () => {
  const { house, suspects } = await setup();
  await house.rows(
    "insert into sagabox.suspect (consumer, event_id, crashes) values ('billing', 'killer', 2)",
  );
  let runs = 0;
  house.registry.on(OrderPlaced, { consumer: "billing", maxCrashes: 2 }, () => void (runs += 1));
  await house.start();
  await house.publish(aMessage({ id: "killer" }), aMessage({ id: "innocent" }));
  await house.observer.until("dead_letter.buried");
  await house.observer.until("consumer.processed");
  expect(runs).toBe(1);
  expect(await house.deadLetters()).toMatchObject([
    { messageId: "killer", reason: "poison", errorType: "MESSAGE_KILLS_PROCESS" },
  ]);
  expect(await suspects()).toEqual([]);
});

test("one statement lists many messages", async () => {
  const { house } = await setup();
  let writes = 0;
  const { ledger } = house;
  const list = ledger?.listInFlight.bind(ledger);
  if (ledger !== undefined && list !== undefined) {
    ledger.listInFlight = (consumer, ids) => {
      writes += 1;
      return list(consumer, ids);
    };
  }
  house.registry.on(OrderPlaced, { consumer: "billing", concurrency: 8, prefetch: 40 }, async (_, { tx }) => {
    await tx.query("select 1");
  });
  await house.start();
  await house.publish(...Array.from({ length: 200 }, () => aMessage()));
  await house.observer.until("consumer.processed", 200);
  expect(writes).toBeLessThan(40);
});
