import { expect, test, vi } from "vitest";
import { event, refuse, saga, type Bus, type BusOptions } from "sagabox";
import { z } from "zod";
import { sagaHarness } from "../../test/support/saga-fixture.ts";
import { subjectsBus, subjectsDatabase, testKeyRing } from "../../test/support/data-subjects.ts";
import { until } from "../../test/support/relays.ts";

vi.setConfig({ testTimeout: 120_000 }); // each test starts several workers

const Approved = event("approvals.given", { schema: z.object({ id: z.string() }), key: (d) => d.id });
const options = { version: 1, input: z.object({ id: z.string() }), key: (i: { id: string }) => i.id };

/** Charges, waits for an approval, and fails. */
const orderOf = (step: string, undone: string[] = []) =>
  saga("order", options)
    .run(step as "charge", () => 1)
    .undo((c) => void undone.push(c.input.id))
    .waitFor("approval", Approved, { timeout: "1d" })
    .run("close", () => {
      throw refuse("closed on Sundays");
    })
    .noUndo("it is last");

const stored = async ({ pool }: Awaited<ReturnType<typeof sagaHarness>>) =>
  (
    await pool.query<{ type: string; version: number; structure: { path: string }[] }>(
      "select saga_type as type, version, structure from sagabox.saga_definition order by saga_type, version",
    )
  ).rows.map(({ type, version, structure }) => [type, version, structure.map(({ path }) => path).join()]);

const approve = (bus: Bus, id: string) => bus.transaction((tx) => tx.publish(Approved, { id }));

/** An instance that stands behind its first step, moved by a worker with the old definition, which has stopped. */
async function begun() {
  const house = await sagaHarness();
  const { bus, another, start, at } = house;
  // Both run during a rolling deploy: the new worker was there before the instance.
  const changed = another("changed");
  const undone: string[] = [];
  changed.register(orderOf("pay", undone));
  await changed.run();
  const order = orderOf("charge", undone);
  bus.register(order);
  await bus.run();
  const { sagaId } = await start(order, { id: "a" });
  await at(sagaId, "running", "approval");
  return { ...house, changed, sagaId, undone };
}

test("a done step that was renamed is an incident when the instance fails, and a person ends it", async () => {
  const { bus, changed, sagaId, at, undone } = await begun();
  await bus.stop();
  await approve(changed, "a");
  await at(sagaId, "failed");
  expect(await changed.sagas.incidents()).toMatchObject([
    { sagaId, steps: ["charge"], error: 'the definition has no step "charge"' },
  ]);
  expect(await changed.sagas.show(sagaId)).toMatchObject({
    currentStep: "charge",
    lastError: 'the definition has no step "charge"',
  });
  const [stuck] = await changed.sagas.stuck();
  expect(stuck).toMatchObject({
    reason: "incident",
    why: 'Step charge: the definition has no step "charge"',
  });
  expect(stuck?.whatToDo).toContain("sagabox saga check");
  const by = { actor: "ann", reason: "test" };
  await expect(changed.sagas.retry(sagaId, by)).rejects.toMatchObject({ code: "SAGA_ACTION_REFUSED" });
  await changed.sagas.cancel(sagaId, by);
  const undoFailed = 'it cannot be undone: the definition has no step "charge"';
  await until(async () => (await changed.sagas.incidents())[0]?.error === undoFailed);
  await changed.sagas.settle(sagaId, { ...by, step: "charge" });
  await at(sagaId, "compensated");
  expect(await changed.sagas.incidents()).toEqual([]);
  expect(undone).toEqual([]);
});

test("a worker with the definition as it was takes a parked instance up again after a retry", async () => {
  const { bus, another, changed, sagaId, at, undone } = await begun();
  await bus.stop();
  await approve(changed, "a");
  await at(sagaId, "failed");
  await changed.stop();
  const restored = another("restored");
  restored.register(orderOf("charge", undone));
  await restored.run();
  await restored.sagas.retry(sagaId, { actor: "ann", reason: "rolled back" });
  await at(sagaId, "compensated");
  expect(undone).toEqual(["a"]);
});

test("a worker refuses to start with a definition that lacks a step of an unfinished instance", async () => {
  const house = await begun();
  const { another, bus, sagaId, changed, at } = house;
  const late = another("late");
  late.register(orderOf("pay"));
  await expect(late.run()).rejects.toMatchObject({
    code: "SAGA_DEFINITION_CHANGED",
    message:
      'Saga "order" version 1 was changed without a new version, and 1 unfinished instance has begun steps that it lacks: ' +
      'step "charge" was removed or renamed (run) (instances: 1). Register the definition as it was under version 1, and ' +
      "the changed one alongside it under a higher version. " +
      "To see the difference: sagabox saga check --app <module> --type order",
  });
  expect(await stored(house)).toEqual([["order", 1, "charge,approval,close"]]);
  const report = await late.sagas.check();
  expect(report.definitions).toEqual([
    {
      type: "order",
      version: 1,
      verdict: "changed",
      differences: ['"charge" was removed or renamed (run)', '"pay" was added (run)'],
      unfitSteps: [{ step: "charge", why: "was removed or renamed (run)", instances: 1 }],
      unfitInstances: 1,
    },
  ]);
  expect(report.findings).toMatchObject([{ verdict: "stuck", step: "charge" }]);

  // Once it is parked a person decides, for which some worker has to run.
  await bus.stop();
  await approve(changed, "a");
  await at(sagaId, "failed");
  await late.run();
});

test("a definition under a new version is stored beside the old one, and two workers with the same one start", async () => {
  const house = await begun();
  const { another } = house;
  const modern = another("modern");
  const second = saga("order", { ...options, version: 2 }).delay("pause", 10);
  modern.register(orderOf("charge"), second);
  const twin = another("twin");
  twin.register(orderOf("charge"), second);
  await Promise.all([modern.run(), twin.run()]);
  expect(await stored(house)).toEqual([
    ["order", 1, "charge,approval,close"],
    ["order", 2, "pause"],
  ]);
  const { definitions } = await modern.sagas.check();
  expect(definitions.map(({ verdict }) => verdict)).toEqual(["same", "same"]);
});

test("a changed definition that lacks nothing is warned of at each start; it is stored when no instance depends on the old one", async () => {
  const house = await begun();
  const { another, observer, bus, changed, sagaId, at } = house;
  await changed.stop();
  const grown = (worker: string): Bus => {
    const made = another(worker);
    made.register(
      saga("order", options)
        .run("charge", () => 1)
        .undo(() => undefined)
        .waitFor("approval", Approved, { timeout: "1d" })
        .delay("pause", 10),
    );
    return made;
  };
  await grown("one").run();
  const warning = {
    type: "order",
    version: 1,
    differences: '"close" was removed or renamed (run); "pause" was added (delay)',
    unfinished: 1,
    command: "sagabox saga check --app <module> --type order",
  };
  expect(await observer.until("saga.definition_changed", 2)).toContainEqual(warning);
  expect(await stored(house)).toEqual([["order", 1, "charge,approval,close"]]);
  await bus.sagas.cancel(sagaId, { actor: "ann", reason: "test" });
  await at(sagaId, "compensated");
  await grown("two").run();
  expect(await observer.until("saga.definition_changed", 3)).toContainEqual({ ...warning, unfinished: 0 });
  expect(await stored(house)).toEqual([["order", 1, "charge,approval,pause"]]);
});

test("a database that has instances but no stored definition is compared by the records of the instances", async () => {
  const { another, pool } = await begun();
  await pool.query("delete from sagabox.saga_definition");
  const late = another("late");
  late.register(orderOf("pay"));
  await expect(late.run()).rejects.toThrow('step "charge" is not in the definition (instances: 1)');
  const unchanged = another("unchanged");
  unchanged.register(orderOf("charge"));
  await unchanged.run();
});

test("records that are encrypted for a person are compared too, unless the keys are not available", async () => {
  const database = await subjectsDatabase();
  const personal = { subject: (i: { id: string }) => i.id };
  const visitOf = (step: string) =>
    saga("visit", { ...options, personal })
      .run(step as "greet", () => 1)
      .undo(() => undefined)
      .waitFor("approval", Approved, { timeout: "1d" });
  const worker = (changes: Partial<BusOptions> = {}, step = "meet"): Bus => {
    const made = subjectsBus(database, changes);
    made.register(visitOf(step));
    return made;
  };
  const visit = visitOf("greet");
  const bus = subjectsBus(database);
  bus.register(visit);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, visit, { id: "ada" }));
  await until(async () => (await bus.sagas.show(sagaId)).waitsFor === "wait: approval");
  await expect(worker().run()).rejects.toThrow('step "greet" was removed or renamed (run) (instances: 1)');
  const inner = testKeyRing();
  const away = (): Promise<never> => Promise.reject(new Error("away"));
  const keys = {
    currentKeyId: () => inner.currentKeyId(),
    wrap: inner.wrap.bind(inner),
    unwrap: away,
  };
  await worker({ privacy: { keys, indexKey: inner.indexKey } }).run();
  await worker({}, "greet").run();
});

const charged = (undone: string[]) =>
  saga("order", options)
    .run("charge", () => 1)
    .undo((c) => void undone.push(c.input.id));

test.each([
  [
    "noUndo",
    () =>
      saga("order", options)
        .run("charge", () => 1)
        .noUndo("it is free"),
  ],
  ["a delay", () => saga("order", options).delay("charge", 10)],
])(
  "a step that an old worker began with an undo is an incident for a new worker that has replaced the stored definition: %s",
  async (_, changedCharge) => {
    const { bus, another, start, at, pool } = await sagaHarness();
    const undone: string[] = [];
    const approved = <T extends ReturnType<typeof charged>>(first: T) =>
      first
        .waitFor("approval", Approved, { timeout: "1d" })
        .run("close", () => {
          throw refuse("closed on Sundays");
        })
        .noUndo("it is last");
    const order = approved(charged(undone));
    const changedWorker = (name: string): Bus => {
      const made = another(name);
      made.register(approved(changedCharge() as ReturnType<typeof charged>));
      return made;
    };
    const structure = async () =>
      (await pool.query<{ hash: string }>("select hash from sagabox.saga_definition")).rows[0]?.hash;
    bus.register(order);
    await bus.run();
    const before = await structure();
    const first = changedWorker("first-changed");
    await first.run();
    expect(await structure()).not.toBe(before);
    await first.stop(); // so that the old worker does the first step
    const { sagaId } = await start(order, { id: "a" });
    await at(sagaId, "running", "approval");
    const changed = changedWorker("changed");
    expect((await changed.sagas.check()).findings).toMatchObject([
      { verdict: "stuck", step: "charge", why: "it could not be undone: the definition has no undo for it" },
    ]);
    await changed.run();
    await bus.stop();
    await approve(changed, "a");
    await at(sagaId, "failed");
    expect(await changed.sagas.incidents()).toMatchObject([
      { sagaId, steps: ["charge"], error: "it cannot be undone: the definition has no undo for it" },
    ]);
    expect(undone).toEqual([]);
    await changed.stop();
    const restored = another("restored");
    restored.register(order);
    await restored.run();
    await restored.sagas.retry(sagaId, { actor: "ann", reason: "rolled back" });
    await at(sagaId, "compensated");
    expect(undone).toEqual(["a"]);
    expect(await restored.sagas.incidents()).toEqual([]);
  },
);

test("a step of an encrypted instance that began with an undo is an incident for a worker without it", async () => {
  const database = await subjectsDatabase();
  const visit = saga("visit", { ...options, personal: { subject: (i: { id: string }) => i.id } });
  const undone = visit
    .run("greet", () => 1)
    .undo(() => undefined)
    .waitFor("approval", Approved, { timeout: "1d" });
  const free = visit
    .run("greet", () => 1)
    .noUndo("it is free")
    .waitFor("approval", Approved, { timeout: "1d" });
  const worker = (definition: typeof undone): Bus => {
    const made = subjectsBus(database);
    made.register(definition);
    return made;
  };
  const bus = worker(undone);
  await bus.run();
  const replacing = worker(free);
  await replacing.run();
  await replacing.stop();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, undone, { id: "ada" }));
  await until(async () => (await bus.sagas.show(sagaId)).waitsFor === "wait: approval");
  const changed = worker(free);
  await changed.run();
  await bus.stop();
  await changed.sagas.cancel(sagaId, { actor: "ann", reason: "test" });
  await until(async () => (await changed.sagas.show(sagaId)).status === "failed");
  expect(await changed.sagas.incidents()).toMatchObject([{ sagaId, steps: ["greet"] }]);
});
