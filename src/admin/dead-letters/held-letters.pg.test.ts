import { createBus, event } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { until } from "../../../test/support/relays.ts";
import { republish } from "../../outbox/index.ts";
import { pgDatabase } from "../../storage/index.ts";
import { buryLiveMessage, editDeadLetter } from "./dead-letter-actions.ts";
import { createDeadLetterAdmin } from "./dead-letter-admin.ts";
import { replayInStages } from "./staged-replay.ts";

vi.setConfig({ testTimeout: 60_000 });

const Held = event("order.held", {
  schema: z.object({ id: z.string(), n: z.number() }),
  key: ({ id }) => id,
  onDead: "hold",
});
const by = { actor: "ann", reason: "fixed" };

async function setup() {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const database = pgDatabase(pool);
  const rows = async (sql: string) => (await pool.query<Record<string, unknown>>(sql)).rows;
  const start = (transport: MemoryTransport) => {
    const bus = createBus({
      service: "shop",
      database: pool,
      log: false,
      transport,
      outbox: { optimistic: false },
    });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  return { database, rows, start, admin: createDeadLetterAdmin(database, "sagabox") };
}

const broker = () => new MemoryTransport({ capabilities: { ordersRetries: false } });

test("a blocking dead letter that is edited twice sends the last data", async () => {
  const { rows, start, admin } = await setup();
  const bus = start(broker());
  const { id } = await bus.transaction((tx) => tx.publish(Held, { id: "o1", n: 1 }));
  for (const n of [2, 1, 2, 3, 1]) {
    const { deadLetterId } = await buryLiveMessage(admin, id, by);
    await editDeadLetter(admin, deadLetterId, { data: `{"id":"o1","n":${n}}`, ...by });
    const sent = await rows(
      `select data from sagabox.outbox join sagabox.message on id = message_id and message.written_on = outbox.written_on`,
    );
    expect(sent).toEqual([{ data: `{"id":"o1","n":${n}}` }]);
  }
});

test("a blocking dead letter whose message was republished is replayed from its own row", async () => {
  const { database, rows, start, admin } = await setup();
  const first = broker();
  const one = start(first);
  await one.run();
  const { id } = await one.transaction((tx) => tx.publish(Held, { id: "o1", n: 1 }));
  await until(async () => (await rows("select 1 from sagabox.outbox")).length === 0);
  expect(first.published).toHaveLength(1);
  await one.stop();
  const window = { from: new Date(Date.now() - 60_000), to: new Date(Date.now() + 1_000) };
  await republish(database, "sagabox", { ...window, ...by });
  await buryLiveMessage(admin, id, by);
  const second = broker();
  await start(second).run();
  const live = "select 1 from sagabox.member where scope = 0 and lease_until > now()";
  await until(async () => (await rows(live)).length > 0);
  expect(await replayInStages(admin, {}, by)).toMatchObject({
    verdict: "done",
    replayed: 1,
    handled: 1,
    left: 0,
  });
  expect(second.published).toHaveLength(1);
});
