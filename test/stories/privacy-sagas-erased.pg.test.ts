import { event, saga } from "sagabox";
import { expect, test } from "vitest";
import { z } from "zod";
import { subjectsBus, subjectsDatabase, testKeyRing, wholeDatabase } from "../support/data-subjects.ts";
import type { TemporaryDatabase } from "../support/database.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

const subject = ({ customerId }: { customerId: string }): string => customerId;
const input = z.object({ customerId: z.string() });
const ERASED = "the person it was about was erased";
const fresh = { privacy: { keys: testKeyRing(), cacheTtl: 0 } };

/** What is left when a key was made by a transaction that was open while its person was erased. */
async function destroyKeys({ pool }: TemporaryDatabase): Promise<void> {
  await pool.query("update sagabox.subject_key set wrapped = null, kek_id = null, erased_at = now()");
}

async function parkedLines({ pool }: TemporaryDatabase, id: string): Promise<number> {
  const sql = "select from sagabox.saga_audit_log where saga_id = $1 and cause = 'erasure'";
  return (await pool.query(sql, [id])).rowCount ?? 0;
}

test("C6: a saga whose person is found to be erased is parked once, for a person to end it", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const local = saga("local", { version: 1, input, key: subject, personal: { subject } })
    .run("look", () => ({ ok: 1 }))
    .pivot();
  const starter = subjectsBus(database);
  starter.register(local);
  const { sagaId } = await starter.transaction((tx) => starter.start(tx, local, { customerId: "c-late" }));
  await destroyKeys(database);
  const worker = subjectsBus(database, { ...fresh, observers: [observer] });
  worker.register(local);
  await worker.run();
  const countPendingInputs = async (): Promise<number> =>
    (await database.pool.query("select from sagabox.saga_input")).rowCount ?? 0;
  await expect.poll(() => parkedLines(database, sagaId), { timeout: 8_000 }).toBe(1);
  expect(await worker.sagas.show(sagaId)).toMatchObject({ status: "failed", incident: { error: ERASED } });
  expect(observer.of("saga.changed")).toMatchObject([{ id: sagaId, to: "failed", error: ERASED }]);
  await database.pool.query(
    `insert into sagabox.saga_input (id, saga_type, saga_id, cause, input, expires_at)
     values ('late', 'local', $1, 'test', '{"kind":"tick"}', 'infinity')`,
    [sagaId],
  );
  await expect.poll(countPendingInputs, { timeout: 8_000 }).toBe(0);
  expect(await parkedLines(database, sagaId)).toBe(1);
  expect(await worker.privacy.endSaga(sagaId, { actor: "clerk", reason: "erased" })).toBe(true);
  expect(await worker.sagas.show(sagaId)).toMatchObject({ status: "compensated", incident: null });
}, 20_000);

test("C6: a saga whose subject is erased while it is in flight is released and parked", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { ...fresh, observers: [observer] });
  const moving = saga("moving", { version: 1, input, key: subject, personal: { subject } })
    .run("first", () => destroyKeys(database))
    .noUndo("erased is erased")
    .tx("second", () => ({ ok: 1 }))
    .pivot();
  bus.register(moving);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, moving, { customerId: "c-late" }));
  await expect.poll(() => parkedLines(database, sagaId), { timeout: 8_000 }).toBe(1);
  expect(await bus.sagas.show(sagaId)).toMatchObject({ status: "failed", incident: { error: ERASED } });
  expect(observer.of("saga.failed")).toEqual([]);
}, 20_000);

test("C6: an event about another person, erased before the saga read it, still moves the saga", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, fresh);
  const Assigned = event("zoo.assigned", {
    schema: z.object({ order: z.string(), courier: z.string(), phones: z.array(z.string()) }),
    key: ({ order }) => order,
    personal: { subject: ({ courier }) => courier, fields: ["phones.*"] },
  });
  const order = saga("order", {
    version: 1,
    input: z.object({ order: z.string(), customerId: z.string() }),
    key: ({ order: id }) => id,
    personal: { subject },
  })
    .waitFor("assigned", Assigned, { timeout: "1h" })
    .run("see", ({ steps }) => ({ saw: JSON.stringify(steps.assigned) }))
    .noUndo("seen is seen");
  bus.register(order);
  await bus.run();
  await bus.transaction((tx) =>
    tx.publish(Assigned, { order: "o-1", courier: "c-bob", phones: ["555-CANARY"] }),
  );
  const countPendingInputs = async (): Promise<number> =>
    (await database.pool.query("select from sagabox.saga_input")).rowCount ?? 0;
  await expect.poll(countPendingInputs, { timeout: 8_000 }).toBe(1);
  expect(await wholeDatabase(database)).not.toContain("555-CANARY");
  await bus.privacy.erase("c-bob", { reason: "request" });
  const { sagaId } = await bus.transaction((tx) =>
    bus.start(tx, order, { order: "o-1", customerId: "c-ada" }),
  );
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 8_000 }).toBe("completed");
  expect((await bus.sagas.show(sagaId)).steps.at(-1)?.result).toEqual({
    saw: '{"order":"o-1","courier":"c-bob","phones":[{"$erased":true}]}',
  });
}, 20_000);
