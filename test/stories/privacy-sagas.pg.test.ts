import { command, event, permanent, saga, type DataOf } from "sagabox";
import { expect, test } from "vitest";
import { z } from "zod";
import {
  canaries,
  subjectsBus,
  subjectsDatabase,
  createDeferred,
  testKeyRing,
  wholeDatabase,
} from "../support/data-subjects.ts";
import { RecordingObserver } from "../support/recording-observer.ts";

const Greet = command("people.greet", {
  schema: z.object({ customerId: z.string(), email: z.string() }),
  reply: z.object({ letter: z.string() }),
  personal: { subject: ({ customerId }) => customerId, fields: ["email"] },
});

const Confirmed = event("people.confirmed", {
  schema: z.object({ customerId: z.string(), name: z.string() }),
  key: ({ customerId }) => customerId,
  personal: { subject: ({ customerId }) => customerId, fields: ["name"] },
});

const input = z.object({ customerId: z.string(), email: z.string() });
const ada = { customerId: "c-ada", email: "ada.lovelace@canary.example" };
const subject = ({ customerId }: { customerId: string }): string => customerId;

const welcome = saga("welcome", { version: 1, input, key: subject, personal: { subject } })
  .send("greet", Greet, ({ input: { customerId, email } }) => ({ customerId, email }))
  .noUndo("a greeting stays")
  .waitFor("confirmed", Confirmed, { timeout: "1h" })
  .run("note", ({ steps }) => ({ says: `Canary Byron confirms ${steps.confirmed.name as string}` }))
  .noUndo("a note stays");

test("C6: everything a saga about a person holds is sealed, and it runs as any other", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  bus.register(welcome);
  const greeted = createDeferred<DataOf<typeof Greet>>();
  bus.on(Greet, { consumer: "greeter" }, ({ data }) => {
    greeted.resolve(data);
    return { letter: "sent" };
  });
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, welcome, ada));
  expect((await greeted.promise).email).toBe(ada.email);
  await expect.poll(async () => (await bus.sagas.show(sagaId)).waitsFor).toBe("wait: confirmed");
  await bus.transaction((tx) => tx.publish(Confirmed, { customerId: "c-ada", name: "Canary Babbage" }));
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 10_000 }).toBe("completed");
  const shown = await bus.sagas.show(sagaId);
  expect(shown.input).toEqual(ada);
  expect(shown.steps.at(-1)?.result).toEqual({ says: "Canary Byron confirms Canary Babbage" });
  const everything = (await wholeDatabase(database)) + JSON.stringify(observer.emitted);
  expect(canaries.filter((canary) => everything.includes(canary))).toEqual([]);
  expect(JSON.stringify(await bus.sagas.history(sagaId))).toContain("Canary Babbage");
  expect(await bus.sagas.check()).toMatchObject({ checked: 1, same: 1 });
  const lines = [];
  for await (const { kind, data } of bus.privacy.export("c-ada", { reason: "request" }))
    lines.push([kind, JSON.stringify(data).includes(ada.email)]);
  expect(lines).toContainEqual(["saga", true]);

  const blind = subjectsBus(database, { privacy: {} });
  expect((await blind.sagas.show(sagaId)).input).toBe("[sealed]");
  await bus.privacy.erase("c-ada", { reason: "request" });
  expect((await bus.sagas.show(sagaId)).input).toBe("[erased]");
  const history = JSON.stringify(await bus.sagas.history(sagaId));
  expect([history.includes("[erased]"), canaries.some((canary) => history.includes(canary))]).toEqual([
    true,
    false,
  ]);
  expect(await bus.sagas.check()).toMatchObject({ checked: 0 });
});

test("C6: an event that came before its saga is kept sealed, and found", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  bus.register(welcome);
  bus.on(Greet, { consumer: "greeter" }, () => ({ letter: "sent" }));
  await bus.run();
  await bus.transaction((tx) => tx.publish(Confirmed, { customerId: "c-ada", name: "Canary Babbage" }));
  const countPendingInputs = async (): Promise<number> =>
    (await database.pool.query("select from sagabox.saga_input")).rowCount ?? 0;
  await expect.poll(countPendingInputs, { timeout: 10_000 }).toBe(1);
  const text = await wholeDatabase(database);
  expect(canaries.filter((canary) => text.includes(canary))).toEqual([]);
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, welcome, ada));
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 15_000 }).toBe("completed");
});

test("C6: errors of a saga with a data subject are reported without personal data", async () => {
  const database = await subjectsDatabase();
  const observer = new RecordingObserver();
  const bus = subjectsBus(database, { observers: [observer] });
  const failing = saga("failing", { version: 1, input, key: subject, personal: { subject } })
    .run("write", ({ input: { email } }) => {
      throw permanent(`no letter box for ${email}`);
    })
    .pivot();
  bus.register(failing);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, failing, ada));
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 10_000 }).toBe("failed");
  const everything =
    (await wholeDatabase(database)) +
    JSON.stringify(observer.emitted) +
    JSON.stringify(await bus.sagas.incidents());
  expect(canaries.filter((canary) => everything.includes(canary))).toEqual([]);
  expect((await bus.sagas.show(sagaId)).steps[0]?.error).toContain(ada.email);
  await bus.sagas.settle(sagaId, {
    step: "write",
    result: { to: "Canary Byron" },
    actor: "clerk",
    reason: "done by hand",
  });
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 10_000 }).toBe("completed");
  const text = await wholeDatabase(database);
  expect(canaries.filter((canary) => text.includes(canary))).toEqual([]);
});

test("C6: a person with a running saga is erased by force only; the saga is parked and can be ended", async () => {
  const database = await subjectsDatabase();
  const bus = subjectsBus(database);
  bus.register(welcome);
  bus.on(Greet, { consumer: "greeter" }, () => ({ letter: "sent" }));
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, welcome, ada));
  await expect.poll(async () => (await bus.sagas.show(sagaId)).waitsFor).toBe("wait: confirmed");
  const erasing = bus.privacy.erase("c-ada", { reason: "request" });
  await expect(erasing).rejects.toMatchObject({
    code: "PRIVACY_SUBJECT_BUSY",
    message: expect.stringContaining(sagaId),
  });
  const report = await bus.privacy.erase("c-ada", { reason: "request", actor: "clerk", force: true });
  expect(report.sagasParked).toMatchObject([{ id: sagaId, type: "welcome" }]);
  expect(await bus.sagas.show(sagaId)).toMatchObject({
    status: "failed",
    input: "[erased]",
    incident: { error: "the person it was about was erased" },
  });
  // What still comes for it does no harm, and is not kept.
  await bus.transaction((tx) => tx.publish(Confirmed, { customerId: "c-ada", name: "Canary Babbage" }));
  const cancelling = bus.sagas.cancel(sagaId, { actor: "clerk", reason: "erased" });
  await expect(cancelling).rejects.toMatchObject({ code: "SAGA_ACTION_REFUSED" });
  expect(await bus.sagas.stuck()).toMatchObject([{ id: sagaId }]);
  expect(await bus.privacy.endSaga(sagaId, { actor: "clerk", reason: "erased" })).toBe(true);
  expect(await bus.privacy.endSaga(sagaId, { actor: "clerk", reason: "erased" })).toBe(false);
  expect(await bus.sagas.show(sagaId)).toMatchObject({ status: "compensated", incident: null });
});

test("C6: a saga that takes in personal data must say whose, and needs keys", async () => {
  const database = await subjectsDatabase();
  expect(() =>
    saga("silent", { version: 1, input, key: subject }).waitFor("confirmed", Confirmed, { timeout: "1h" }),
  ).toThrowError(/personal/);
  const bus = subjectsBus(database, { privacy: {} });
  bus.register(welcome);
  const starting = bus.transaction((tx) => bus.start(tx, welcome, ada));
  await expect(starting).rejects.toMatchObject({ code: "PRIVACY_KEYS_MISSING" });
});

test("C-08: a process without keys leaves sagas about persons to those who have them", async () => {
  const database = await subjectsDatabase(40);
  const blind = subjectsBus(database, { service: "people", worker: "blind", privacy: {} });
  const seeing = subjectsBus(database, { privacy: { keys: testKeyRing() } });
  const local = saga("local", { version: 1, input, key: subject, personal: { subject } })
    .run("look", ({ input: { email } }) => ({ length: email.length }))
    .pivot();
  blind.register(local);
  seeing.register(local);
  await blind.run();
  const { sagaId } = await seeing.transaction((tx) => seeing.start(tx, local, ada));
  await seeing.run();
  await expect
    .poll(async () => (await seeing.sagas.show(sagaId)).status, { timeout: 10_000 })
    .toBe("completed");
});
