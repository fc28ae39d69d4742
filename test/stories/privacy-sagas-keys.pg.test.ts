import { event, saga, type BusOptions } from "sagabox";
import type { KeyWrapper } from "sagabox/privacy";
import { expect, test } from "vitest";
import { z } from "zod";
import { subjectsBus, subjectsDatabase, createDeferred, testKeyRing } from "../support/data-subjects.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

const input = z.object({ customerId: z.string(), email: z.string() });
const ada = { customerId: "c-ada", email: "ada.lovelace@canary.example" };
const subject = ({ customerId }: { customerId: string }): string => customerId;

/** Keys whose keeper does as the test says before it answers. */
function keptBy(answering: () => Promise<void>): Partial<BusOptions> {
  const inner = testKeyRing();
  const keys: KeyWrapper = {
    currentKeyId: () => inner.currentKeyId(),
    wrap: (key, context) => inner.wrap(key, context),
    unwrap: async (wrapped, context) => {
      await answering();
      return inner.unwrap(wrapped, context);
    },
  };
  return { privacy: { keys, indexKey: inner.indexKey, cacheTtl: 0, keyTimeout: "30s" }, lease: "1s" };
}

const paying = saga("paying", { version: 1, input, key: subject, personal: { subject } })
  .run("pay", () => ({ paid: true }))
  .pivot();

test("C6: a saga that could not be opened because the keys were away is not taken for one that kills", async () => {
  const database = await subjectsDatabase();
  let away = true;
  const options = keptBy(() => (away ? Promise.reject(new Error("away")) : Promise.resolve()));
  const starter = subjectsBus(database);
  starter.register(paying);
  const { sagaId } = await starter.transaction((tx) => starter.start(tx, paying, ada));
  await database.pool.query("update sagabox.saga_instance set claims = 3"); // one more is still no suspicion
  const observer = new RecordingObserver();
  const worker = subjectsBus(database, { ...options, observers: [observer] });
  worker.register(paying);
  await worker.run();
  await observer.until("saga.failed", 2);
  const claims = async (): Promise<unknown> =>
    (await database.pool.query("select claims from sagabox.saga_instance")).rows;
  await expect.poll(claims).toEqual([{ claims: 3 }]);
  away = false;
  await expect
    .poll(async () => (await worker.sagas.show(sagaId)).status, { timeout: 10_000 })
    .toBe("completed");
}, 20_000);

test("C6: while the key service does not answer, sagas without a subject continue", async () => {
  const database = await subjectsDatabase();
  const asked = createDeferred<undefined>();
  const answered = createDeferred<undefined>();
  const options = keptBy(async () => {
    asked.resolve(undefined);
    await answered.promise;
  });
  const plain = saga("plain", { version: 1, input: z.object({ id: z.string() }), key: ({ id }) => id })
    .run("count", () => ({ counted: 1 }))
    .pivot();
  const starter = subjectsBus(database);
  starter.register(paying, plain);
  const about = await starter.transaction((tx) => starter.start(tx, paying, ada));
  const worker = subjectsBus(database, options);
  worker.register(paying, plain);
  await worker.run();
  await asked.promise;
  const { sagaId } = await starter.transaction((tx) => starter.start(tx, plain, { id: "p" }));
  const readStatus = async (id: string): Promise<unknown> =>
    (await database.pool.query("select status from sagabox.saga_instance where id = $1", [id])).rows[0];
  await expect.poll(() => readStatus(sagaId), { timeout: 8_000 }).toEqual({ status: "completed" });
  answered.resolve(undefined);
  await expect.poll(() => readStatus(about.sagaId), { timeout: 8_000 }).toEqual({ status: "completed" });
}, 20_000);

const failing = {
  subject: ({ email }: { email: string }): string => {
    throw new Error(`no account for ${email}`);
  },
};

test("C6: what a saga's own search for its person throws is not repeated", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  const nameless = saga("nameless", { version: 1, input, key: subject, personal: failing })
    .run("pay", () => ({ paid: true }))
    .pivot();
  bus.register(nameless);
  const starting = bus.transaction((tx) => bus.start(tx, nameless, ada));
  await expect(starting).rejects.toMatchObject({
    code: "PRIVACY_SUBJECT_INVALID",
    message: expect.not.stringContaining(ada.email),
  });
});

test("C6: a child whose subject cannot be found fails its step, and the parent continues from there", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  const child = saga("child", { version: 1, input, key: subject, personal: failing })
    .run("pay", () => ({ paid: true }))
    .pivot();
  const parent = saga("parent", { version: 1, input, key: subject, personal: { subject } })
    .run("before", () => ({ done: 1 }))
    .noUndo("nothing is left of it")
    .child("child", child, (c) => c.input)
    .noUndo("it never began");
  bus.register(child, parent);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, parent, ada));
  await expect
    .poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 8_000 })
    .toBe("compensated");
  expect(JSON.stringify(observer.emitted)).not.toContain(ada.email);
}, 20_000);

test("C6: an early event whose person is named only in what was erased is kept without them", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database, { privacy: { keys: testKeyRing(), cacheTtl: 0 } });
  const Moved = event("people.moved", {
    schema: z.object({ order: z.string(), email: z.string() }),
    key: ({ order }) => order,
    personal: { subject: ({ email }) => email.toLowerCase(), fields: ["email"] },
  });
  const order = saga("order", {
    version: 1,
    input: z.object({ order: z.string(), customerId: z.string() }),
    key: ({ order: id }) => id,
    personal: { subject },
  })
    .waitFor("moved", Moved, { timeout: "1h" })
    .run("see", ({ steps }) => ({ saw: JSON.stringify(steps.moved) }))
    .noUndo("seen is seen");
  bus.register(order);
  await bus.run();
  await bus.transaction(async (tx) => {
    await tx.publish(Moved, { order: "o-1", email: ada.email });
    // Erased before it could be read.
    await tx.query("update sagabox.subject_key set wrapped = null, kek_id = null, erased_at = now()");
  });
  const countPendingInputs = async (): Promise<number> =>
    (await database.pool.query("select from sagabox.saga_input")).rowCount ?? 0;
  await expect.poll(countPendingInputs, { timeout: 8_000 }).toBe(1);
  const { sagaId } = await bus.transaction((tx) =>
    bus.start(tx, order, { order: "o-1", customerId: "c-ada" }),
  );
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 8_000 }).toBe("completed");
  expect((await bus.sagas.show(sagaId)).steps.at(-1)?.result).toEqual({
    saw: '{"order":"o-1","email":{"$erased":true}}',
  });
}, 20_000);
