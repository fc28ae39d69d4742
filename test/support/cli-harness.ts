import { createBus, event } from "sagabox";
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import { readKeyRingFromEnvironment } from "../../src/privacy/index.ts";
import { cliInProcess } from "./cli-in-process.ts";
import { sampleFiles, sampleKeyRing, type Fill } from "./cli-samples.ts";
import { someDeadLetters } from "./dead-letters.ts";
import { ada, Registered } from "./data-subjects.ts";
import { rolesHarness } from "./roles-harness.ts";
import { orderSaga } from "./saga-service.ts";

const Placed = event("order.placed", {
  schema: z.object({ n: z.number(), cause: z.number() }),
  key: ({ n }) => `k${n}`,
});
const broken = ["retried", "skipped", "settled"];
const waiting = ["compensated", "cancelled", "signalled"];
const later = { timeout: 30_000 };

/** A running service in whose database every sample of the command line finds something to look at or to act on. */
export async function cliHarness() {
  const house = await rolesHarness();
  const rows = async <T>(sql: string): Promise<T[]> => (await house.pool.query(sql)).rows as T[];
  const keys = readKeyRingFromEnvironment({ text: sampleKeyRing });
  const bus = createBus({
    service: "shop",
    database: house.url,
    log: false,
    outbox: { optimistic: false },
    sagas: { pollInterval: 20 },
    ...(keys === undefined ? {} : { privacy: { keys } }),
  });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  const placeOrder = (n: number, options = {}) =>
    bus.transaction((tx) => tx.publish(Placed, { n, cause: 0 }, options));
  // These failed once and are tried again in an hour.
  const failed = [await placeOrder(1), await placeOrder(2), await placeOrder(3)];
  await house.pool.query(
    "update sagabox.outbox set attempts = 1, due_at = now() + interval '1 hour', last_error = 'no such topic'",
  );
  await placeOrder(4, { delay: "1h" });
  await someDeadLetters(house.pool, { type: "order.placed", topic: "events.order.placed" }, [
    { consumer: "billing", letters: 6, error: "'order ' || n || ' has no customer'", key: "'a' || n" },
    { consumer: "billing", letters: 4, error: "'timeout after ' || n || ' ms'", key: "'b' || n" },
  ]);

  // This one has gone, and something waits for it.
  await house.pool.query(`
    with gone as (insert into sagabox.consumer_group (name) values ('old-billing') returning id),
         wanted as (insert into sagabox.subscription (topic, group_id) select 'events.order.gone', id from gone)
    insert into sagabox.queue (lane, topic, type, message_id, written_on, due_at)
    select gone.id * 256, 'events.order.gone', 'order.gone', message.id, written_on, now() from gone, sagabox.message limit 1`);

  const order = orderSaga();
  bus.on(Placed, { consumer: "billing" }, () => undefined);
  bus.register(order);
  await bus.run();
  const handled = await placeOrder(5);
  const inbox = `select from sagabox.consumer_inbox where event_id = '${handled.id}'`;
  await expect.poll(async () => (await rows(inbox)).length, later).toBe(1);
  const sagas: Record<string, string> = {};
  for (const [prefix, names] of [
    ["broken", broken],
    ["", waiting],
  ] as const) {
    for (const name of names) {
      const started = await bus.transaction((tx) => bus.start(tx, order, { id: `${prefix}${name}` }));
      sagas[`saga-${name}`] = started.sagaId;
    }
  }
  const settled = `select from sagabox.saga_instance where status = 'failed' or current_step = 'approval'`;
  await expect.poll(async () => (await rows(settled)).length, later).toBe(6);
  for (const customerId of ["c-ada", "c-bob"]) {
    await bus.transaction((tx) => tx.publish(Registered, { ...ada, customerId }));
  }
  const letters = await rows<{ id: string }>("select id::text from sagabox.dead_letter order by id");
  const told = await cliInProcess(["dlq", "groups", "--json"], { DATABASE_URL: house.url });
  const { groups } = JSON.parse(told.stdout) as { groups: { fingerprint: string }[] };
  const fill: Fill = {
    ...sampleFiles(),
    ...sagas,
    message: handled.id,
    "message-waiting": failed[0]?.id ?? "",
    "message-buried": failed[1]?.id ?? "",
    "letter-edited": letters[0]?.id ?? "",
    "letter-replayed": letters[1]?.id ?? "",
    "letter-discarded": letters[2]?.id ?? "",
    letter: letters[3]?.id ?? "",
    "consumer-gone": "old-billing",
    group: groups.at(-1)?.fingerprint ?? "",
    "subject-erased": "c-ada",
    subject: "c-bob",
  };
  return { ...house, fill };
}
