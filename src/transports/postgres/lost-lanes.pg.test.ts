import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createBus, event } from "sagabox";
import { RecordingObserver } from "../../../test/support/recording-observer.ts";
import { temporaryDatabase } from "../../../test/support/database.ts";

const Happened = event("happened", { schema: z.object({ n: z.number() }) });

test("deliveries of lost lanes leave the prefetch, so the consumer continues when it has lanes again", async () => {
  const { pool } = await temporaryDatabase({ max: 20 });
  const observer = new RecordingObserver();
  const bus = createBus({
    service: "test",
    database: pool,
    lease: "1s",
    log: false,
    observers: [observer],
  });
  await bus.migrate();
  onTestFinished(async () => void (await bus.stop()));
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  let begin = (): void => undefined;
  const begun = new Promise<void>((resolve) => (begin = resolve));
  bus.on(Happened, { consumer: "slow", concurrency: 2, prefetch: 8 }, async () => {
    begin();
    await gate;
  });
  await bus.run();
  await bus.transaction(async (tx) => {
    for (let n = 0; n < 30; n++) await tx.publish(Happened, { n });
  });
  await begun;
  // Expire the lease, as if the process had been paused; it notices at its next renewal.
  await pool.query(
    "update sagabox.member set lease_until = clock_timestamp() - interval '1 s' where scope > 0",
  );
  await observer.until("lanes.lost");
  open();
  await observer.until("consumer.processed", 30);
  expect(new Set(observer.of("consumer.processed").map(({ id }) => id)).size).toBe(30);
});

test("I-06: an effect is refused when another member has settled its delivery", async () => {
  const { pool } = await temporaryDatabase({ max: 20 });
  const observer = new RecordingObserver();
  const bus = createBus({ service: "test", database: pool, log: false, observers: [observer] });
  await bus.migrate();
  await pool.query("create table effect (n integer not null)");
  onTestFinished(async () => void (await bus.stop()));
  let goOn = (): void => undefined;
  const gate = new Promise<void>((resolve) => (goOn = resolve));
  let begin = (): void => undefined;
  const begun = new Promise<void>((resolve) => (begin = resolve));
  bus.on(Happened, { consumer: "late" }, async (message, { tx }) => {
    await tx.query("insert into effect (n) values ($1)", [message.data.n]);
    begin();
    await gate;
  });
  await bus.run();
  await bus.transaction(async (tx) => void (await tx.publish(Happened, { n: 1 })));
  await begun;
  // Another member would do this after a take-over: the message is dead-lettered and its delivery deleted.
  await pool.query("delete from sagabox.queue");
  goOn();
  await observer.until("consumer.retried");
  expect(observer.of("consumer.retried")[0]).toMatchObject({ countsAsAttempt: false });
  expect((await pool.query("select n from effect")).rows).toEqual([]);
  expect((await pool.query("select 1 from sagabox.consumer_inbox")).rows).toEqual([]);
});
