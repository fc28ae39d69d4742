import { expect, onTestFinished, test } from "vitest";
import { saga } from "sagabox";
import { z } from "zod";
import { Approved } from "../../test/support/saga-fixture.ts";
import { temporaryDatabase } from "../../test/support/database.ts";
import { until } from "../../test/support/relays.ts";
import { ScriptedDatabase } from "../../test/support/scripted-database.ts";
import { pgDatabase, type Statement } from "../storage/index.ts";
import { silentObserver, silentSpans } from "../telemetry/index.ts";
import type { OpenTransaction } from "./instance-handle.ts";
import { sagaSettings, type SagaBusOptions } from "./options.ts";
import { Sagas } from "./sagas.ts";

async function setup(options: SagaBusOptions = {}) {
  const { pool } = await temporaryDatabase({ migrated: true });
  const database = new ScriptedDatabase(pgDatabase(pool));
  const nothing = (): never => {
    throw new Error("these sagas send nothing");
  };
  const begin: OpenTransaction = async (work) => {
    const tx = await database.begin();
    try {
      const result = await work({
        run: (statement, params) => tx.run(statement, params),
        forUser: () => ({ tx, publish: nothing, start: nothing }),
        destroy: () => tx.destroy(),
        send: nothing,
        onCommit: () => undefined,
        knowsCommit: true,
      });
      await tx.commit();
      return result;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  };
  let ids = 0;
  const sagas = new Sagas({
    service: "shop",
    database,
    schema: "sagabox",
    worker: "only",
    leaseMs: 60_000,
    stopDeadlineMs: 5_000,
    settings: sagaSettings({ pollInterval: 20, ...options }),
    compose: nothing,
    newId: () => `id-${(ids += 1)}`,
    observer: silentObserver,
    spans: silentSpans,
    discardDeadLetters: nothing,
    begin,
    library: null,
    transactionOf: nothing,
  });
  onTestFinished(async () => {
    database.letGo();
    await sagas.runner.stop();
  });
  const row = async (): Promise<{ status: string; claimed_by: string | null } | undefined> =>
    (await pool.query("select status, claimed_by from sagabox.saga_instance")).rows[0] as never;
  return { sagas, database, begin, row, pool };
}

test("an instance that is claimed again before its giving back is answered does not wait for the lease to end", async () => {
  const { sagas, database, begin, row, pool } = await setup();
  const order = saga("order", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id }).waitFor(
    "approval",
    Approved,
    { timeout: "1d" },
  );
  sagas.register(order);
  const { sagaId } = await begin((tx) => sagas.start(tx, order, { id: "a" }));
  const by = { actor: "ann", reason: "test" };
  const post = (kind: "retry" | "cancel"): Promise<boolean> =>
    sagas.engine.addPendingInput(pgDatabase(pool), sagaId, kind, "operator:ann", { kind, by });
  await post("retry"); // of no use, so that the instance is only taken and given back
  const givenBack = database.pauseAfter("sagabox.saga.release");
  await sagas.runner.start();
  await givenBack.reached;
  expect(await row()).toMatchObject({ status: "running", claimed_by: null });
  await post("cancel");
  sagas.hint();
  await until(async () => (await row())?.claimed_by === "only");
  givenBack.open();
  await until(async () => (await row())?.status === "compensated", 10_000);
});

test("the claim is given back with the last step, also where that is a transaction", async () => {
  const { sagas, database, begin, row } = await setup();
  const transfer = saga("transfer", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
    .tx("take", async () => ({ ok: true }))
    .noUndo("a test")
    .tx("give", async () => ({ ok: true }))
    .noUndo("a test");
  sagas.register(transfer);
  await begin((tx) => sagas.start(tx, transfer, { id: "a" }));
  await sagas.runner.start();
  await until(async () => (await row())?.status === "completed");
  expect(await row()).toEqual({ status: "completed", claimed_by: null });
  await sagas.runner.stop();
  expect(database.ran.map(({ name }) => name)).not.toContain("sagabox.saga.release");
});

test("a start locks the key against early events, if the saga awaits any", async () => {
  const { sagas, begin } = await setup();
  const input = z.object({ id: z.string() });
  const deaf = saga("deaf", { version: 1, input, key: (i) => i.id })
    .run("work", () => ({ ok: true }))
    .noUndo("a test");
  const hearing = saga("hearing", { version: 1, input, key: (i) => i.id }).waitFor("approval", Approved, {
    timeout: "1d",
  });
  sagas.register(deaf, hearing);
  const meetings = async (which: typeof deaf | typeof hearing, id: string): Promise<number> => {
    const asked: Statement[] = [];
    await begin((tx) => {
      const run: typeof tx.run = (statement, params) => {
        asked.push(statement);
        return tx.run(statement, params);
      };
      return sagas.start({ ...tx, run }, which, { id });
    });
    return asked.filter((statement) => statement === sagas.engine.sql.meet).length;
  };
  await meetings(deaf, "first"); // in which the database's clock is read
  expect([await meetings(deaf, "a"), await meetings(hearing, "a")]).toEqual([0, 1]);
});

test.each(["run", "tx"] as const)(
  "a tx step whose COMMIT failed has not happened: the %s step behind it waits until it has",
  async (kind) => {
    const { sagas, begin, row, pool } = await setup();
    await pool.query("create table booking (id text)");
    await pool.query("create sequence commits");
    await pool.query(`create function refuse_first() returns trigger language plpgsql as
      $$ begin if nextval('commits') = 1 then raise 'not now' using errcode = '40001'; end if; return null; end $$`);
    await pool.query(`create constraint trigger refuse after insert on booking
      deferrable initially deferred for each row execute function refuse_first()`);
    const seen: unknown[] = [];
    const look = async (): Promise<void> => {
      seen.push((await pool.query("select count(*)::int as booked from booking")).rows[0]);
    };
    const started = saga("trip", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
      .tx("book", async ({ tx }) => void (await tx.query("insert into booking values ('a')")))
      .noUndo("a test");
    const trip =
      kind === "run" ? started.run("tell", look).noUndo("a test") : started.tx("tell", look).noUndo("a test");
    sagas.register(trip);
    await begin((tx) => sagas.start(tx, trip, { id: "a" }));
    await sagas.runner.start();
    await until(async () => (await row())?.status === "completed", 10_000);
    expect(seen).toEqual([{ booked: 1 }]);
  },
);

test("work that arrives while the claim is released starts once, in the next worker", async () => {
  const { sagas, database, begin, row, pool } = await setup();
  const called: string[] = [];
  const [ended, looking, go] = [aGate(), aGate(), aGate()];
  const trip = saga("trip", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
    .run("ask", async () => {
      called.push("ask");
      await ended.passed;
    })
    .noUndo("a test")
    .waitFor("answer", Approved, { timeout: "1h" })
    .run("book", async () => {
      called.push("book");
      await new Promise((resolve) => setTimeout(resolve, 300));
    })
    .noUndo("a test");
  sagas.register(trip);
  const { sagaId } = await begin((tx) => sagas.start(tx, trip, { id: "a" }));
  await sagas.runner.start();
  await until(async () => called.length === 1);
  // Its pending input is about to be read when its step ends, with which the claim could be given back.
  const open = database.begin.bind(database);
  database.begin = async (options) => {
    looking.open();
    await go.passed;
    return open(options);
  };
  sagas.hint(sagaId);
  await looking.passed;
  ended.open();
  const asked = "select 1 from sagabox.saga_instance where current_step = 'answer'";
  await until(async () => (await pool.query(asked)).rows.length === 1);
  const input = { kind: "event", id: "e", type: Approved.name, data: { id: "a", by: "ann" } };
  await pool.query(
    "insert into sagabox.saga_input (id, saga_type, saga_id, cause, input, expires_at) values ('e', 'trip', $1, 'message:e', $2, 'infinity')",
    [sagaId, JSON.stringify(input)],
  );
  go.open();
  await until(async () => (await row())?.status === "completed");
  expect(called).toEqual(["ask", "book"]);
});

function aGate(): { readonly passed: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const passed = new Promise<void>((resolve) => (open = resolve));
  return { passed, open: () => open() };
}

test("an instance claimed ahead of a slow step is released without an attempt, and nothing is lost", async () => {
  const { sagas, database, begin, pool } = await setup({ concurrency: 1 });
  let isSlow = false;
  let goOn: () => void = () => undefined;
  const gate = new Promise<void>((resolve) => (goOn = resolve));
  const order = saga("order", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
    .run("work", async () => (isSlow ? gate : undefined))
    .noUndo("a test");
  sagas.register(order);
  for (let n = 0; n < 800; n++) await begin((tx) => sagas.start(tx, order, { id: `${n}` }));
  database.once("sagabox.saga.claim_ahead", (run) => {
    isSlow = true;
    return run();
  });
  await sagas.runner.start();
  const count = async (condition: string): Promise<number> =>
    (await pool.query(`select from sagabox.saga_instance where ${condition}`)).rowCount ?? 0;
  await until(() => database.ran.some(({ name }) => name === "sagabox.saga.give_back"));
  await until(async () => (await count("claimed_by is not null")) === 1);
  expect(await count("claims > 0")).toBe(1);
  isSlow = false;
  goOn();
  await until(async () => (await count("status = 'completed'")) === 800, 20_000);
  const { rows } = await pool.query(
    "select count(*)::int as lines from sagabox.saga_audit_log where new_status = 'completed' and step is null",
  );
  expect(rows).toEqual([{ lines: 800 }]);
});

test.each(["{}", '{"records": null}', '{"records": {"one": null}}'])(
  "an instance whose state is damaged (%s) ends no process and holds up no other",
  async (state) => {
    const { sagas, begin, pool } = await setup();
    const trip = saga("trip", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
      .run("one", () => undefined)
      .noUndo("a test");
    sagas.register(trip);
    await begin((tx) => sagas.start(tx, trip, { id: "damaged" }));
    await pool.query("update sagabox.saga_instance set state = $1", [state]);
    await begin((tx) => sagas.start(tx, trip, { id: "sound" }));
    await sagas.runner.start();
    await until(async () => {
      const { rows } = await pool.query(
        "select status from sagabox.saga_instance where correlation_id = 'sound'",
      );
      return rows[0]?.status === "completed";
    }, 10_000);
    const { rows } = await pool.query(
      "select status from sagabox.saga_instance where correlation_id = 'damaged'",
    );
    expect(rows).toEqual([{ status: "running" }]);
  },
);

test("no more steps run at once than there are permits, although writes need none", async () => {
  const { sagas, begin, pool } = await setup({ concurrency: 2 });
  let running = 0;
  let most = 0;
  const step = async (): Promise<void> => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setTimeout(resolve, 2));
    running -= 1;
  };
  const trip = saga("trip", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
    .run("one", step)
    .noUndo("a test")
    .run("two", step)
    .noUndo("a test")
    .tx("three", step)
    .noUndo("a test")
    .run("four", step)
    .noUndo("a test");
  sagas.register(trip);
  for (let n = 0; n < 60; n++) await begin((tx) => sagas.start(tx, trip, { id: `${n}` }));
  await sagas.runner.start();
  const open = "select from sagabox.saga_instance where status <> 'completed' or claimed_by is not null";
  await until(async () => (await pool.query(open)).rowCount === 0, 20_000);
  expect(most).toBe(2);
});

test("steps that take no time are written together, more of them than there are permits", async () => {
  const { sagas, database, begin, pool } = await setup({ concurrency: 2 });
  const trip = saga("trip", { version: 1, input: z.object({ id: z.string() }), key: (i) => i.id })
    .run("one", () => undefined)
    .noUndo("a test")
    .run("two", () => undefined)
    .noUndo("a test");
  sagas.register(trip);
  for (let n = 0; n < 400; n++) await begin((tx) => sagas.start(tx, trip, { id: `${n}` }));
  await sagas.runner.start();
  const open = "select from sagabox.saga_instance where status <> 'completed' or claimed_by is not null";
  await until(async () => (await pool.query(open)).rowCount === 0, 20_000);
  const writes = database.ran.filter(({ name }) => name === "sagabox.saga.save").length;
  expect(writes).toBeLessThan((400 * 2) / 2);
});
