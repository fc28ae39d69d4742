import { saga, type DataOf } from "sagabox";
import { SubjectErased } from "sagabox/privacy";
import { expect, test, vi } from "vitest";
import { z } from "zod";
import {
  ada,
  subjectsBus,
  subjectsDatabase,
  Registered,
  testKeyRing,
  sweepAll,
} from "../support/data-subjects.ts";
import type { TemporaryDatabase } from "../support/database.ts";

vi.setConfig({ testTimeout: 60_000 });

const because = { reason: "request 17", actor: "clerk" };
const noCache = { privacy: { keys: testKeyRing(), cacheTtl: 0 } };

async function liveKeys({ pool }: TemporaryDatabase): Promise<number> {
  return (await pool.query("select from sagabox.subject_key where wrapped is not null")).rowCount ?? 0;
}

async function keyIdsInLog({ pool }: TemporaryDatabase): Promise<readonly string[]> {
  const { rows } = await pool.query<{ key_ids: string[] }>("select key_ids from sagabox.gdpr_erasure_log");
  return rows.flatMap(({ key_ids }) => key_ids);
}

test("SEC-41: an erasure that is reapplied leaves alone what the person gave us since", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, noCache);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await bus.privacy.erase("c-ada", because);
  const kept = [];
  for await (const erasure of bus.privacy.erasures()) kept.push(erasure);
  await database.pool.query("delete from sagabox.gdpr_erasure_log");
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await bus.privacy.reapply(kept);
  await sweepAll(bus);
  expect(await liveKeys(database)).toBe(1);
});

test("SEC-41: an erasure restored into a cluster that counts lower is swept once, and by the clock", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, noCache);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await bus.privacy.erase("c-ada", because);
  await database.pool.query(
    "update sagabox.gdpr_erasure_log set swept_at = null, xid = '900000000'; " +
      "update sagabox.subject_key set wrapped = 'back', kek_id = '2026-a', erased_at = null",
  );
  await bus.transaction((tx) => tx.publish(Registered, { ...ada, customerId: "c-bob" }));
  await database.pool.query(
    `insert into sagabox.subject_key (key_id, subject, wrapped, kek_id)
     select 'new-key-of-the-person1', subject, 'new', '2026-a' from sagabox.gdpr_erasure_log;
     insert into sagabox.subject_key (key_id, subject, wrapped, kek_id, created_xid)
     select 'late-key-in-the-old-on', subject, 'new', '2026-a', '899999999' from sagabox.gdpr_erasure_log`,
  );
  await sweepAll(bus);
  const { rows } = await database.pool.query<{ key_id: string }>(
    "select key_id from sagabox.subject_key where wrapped is null",
  );
  expect(rows).toHaveLength(2);
  expect(rows.map(({ key_id }) => key_id)).toContain("late-key-in-the-old-on");
  expect(await liveKeys(database)).toBe(2);
});

test.each(["repeatable read", "serializable"])(
  "C6: a key seen by an old snapshot (%s) is not kept after its erasure",
  async (isolation) => {
    const database = await subjectsDatabase();
    const bus = subjectsBus(database);
    const other = subjectsBus(database, {
      service: "other",
      privacy: { keys: testKeyRing(), cacheTtl: "60s" },
    });
    await bus.transaction((tx) => tx.publish(Registered, ada));
    const client = await database.pool.connect();
    await client.query(`begin isolation level ${isolation}; select from sagabox.subject_key`);
    await bus.privacy.erase("c-ada", because);
    await other.publish(client, Registered, ada).catch(() => undefined);
    await client.query("commit");
    client.release();
    await other.transaction((tx) => tx.publish(Registered, { ...ada, plan: "silver" }));
    expect(await liveKeys(database)).toBe(1);
  },
);

test("C6: keys of transactions that were open are reported to other services, once", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, noCache);
  const notices: DataOf<typeof SubjectErased>[] = [];
  bus.on(SubjectErased, { consumer: "others" }, ({ data }) => void notices.push(data));
  await bus.run();
  await bus.transaction(async (tx) => {
    await tx.publish(Registered, ada);
    await bus.privacy.erase("c-ada", because);
  });
  await Promise.all(Array.from({ length: 6 }, () => bus.privacy.sweep()));
  await sweepAll(bus);
  const inLog = await keyIdsInLog(database);
  expect(inLog).toHaveLength(1);
  await expect.poll(() => notices.length, { timeout: 15_000 }).toBe(2);
  expect(notices.flatMap(({ keyIds }) => keyIds)).toEqual(inLog);
  for await (const erasure of bus.privacy.erasures())
    expect(await bus.privacy.reapply([erasure])).toMatchObject({ refused: 0 });
});

test("C6: while a transaction is open the tables are not read again and again; at its end once more", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, noCache);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  const open = await database.pool.connect();
  await open.query("begin; select pg_current_xact_id()");
  expect((await bus.privacy.erase("c-ada", because)).swept).toBe(false);
  const copied =
    "kind, type, schema_version, topic, correlation_id, traceparent, source, priority, headers, data, written_at";
  const bury = `insert into sagabox.dead_letter (origin, consumer, message_id, ${copied}, max_attempts, reason, attempts,
      error_type, error_message)
    select 'consumer', 'mail', id, ${copied}, 5, 'rejected', 1, 'Error', 'about Ada'
      from sagabox.message where headers like '%sealed%'`;
  await database.pool.query(bury);
  const texts = async (): Promise<unknown> =>
    (await database.pool.query("select error_message from sagabox.dead_letter")).rows;
  expect(await bus.privacy.sweep()).toBe(1);
  expect(await texts()).toEqual([{ error_message: "about Ada" }]);
  await open.query("commit");
  open.release();
  await sweepAll(bus);
  expect(await texts()).toEqual([{ error_message: "[erased]" }]);
});

test("C6: an erasure whose cleaning fails has erased anyway, and reports what is left", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, noCache);
  await bus.transaction((tx) => tx.publish(Registered, ada));
  await database.pool.query("alter table sagabox.dead_letter rename to away");
  expect(await bus.privacy.erase("c-ada", because)).toMatchObject({
    outcome: "erased",
    keysDestroyed: 1,
    swept: false,
  });
  await database.pool.query("alter table sagabox.away rename to dead_letter");
  await sweepAll(bus);
});

const subject = ({ customerId }: { customerId: string }): string => customerId;
const greeting = saga("greeting", {
  version: 1,
  input: z.object({ customerId: z.string(), card: z.string() }),
  key: ({ card }) => card,
  personal: { subject },
})
  .run("greet", () => ({ greeted: true }))
  .noUndo("a greeting stays");

test("C6: a saga whose start was open at the erasure is parked by the sweep, one started since is not", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, noCache);
  bus.register(greeting);
  const { sagaId } = await bus.transaction(async (tx) => {
    const started = await bus.start(tx, greeting, { customerId: "c-ada", card: "1" });
    await bus.privacy.erase("c-ada", because);
    return started;
  });
  await sweepAll(bus);
  await bus.transaction((tx) => bus.start(tx, greeting, { customerId: "c-ada", card: "2" }));
  await database.pool.query("update sagabox.gdpr_erasure_log set swept_at = null");
  await sweepAll(bus);
  const { rows } = await database.pool.query<{ id: string }>(
    "select id from sagabox.saga_instance where status = 'failed'",
  );
  expect(rows).toEqual([{ id: sagaId }]);
  expect((await database.pool.query("select from sagabox.saga_incident")).rowCount).toBe(1);
  expect(await bus.privacy.endSaga(sagaId, because)).toBe(true);
});
