import postgresJs from "postgres";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../test/support/database.ts";
import { event } from "../message/index.ts";
import type { PublishOptions } from "../message/index.ts";
import { saga } from "../saga/index.ts";
import type { CallerTransaction } from "../storage/index.ts";
import { createBus } from "./create-bus.ts";
import { message } from "./bus-transaction.ts";

const schema = z.object({ n: z.number() });
const Noted = event("noted", { schema });
const Strict = event("strict", { schema, key: () => "k", order: "strict" });

/** With a limit, admission asks the database on another connection before anything is written. */
async function setup({ limited = false } = {}) {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const outbox = limited ? { overflow: { policy: "refuse", maxPending: 10_000 } as const } : {};
  const bus = createBus({ service: "shop", database: pool, log: false, outbox });
  onTestFinished(async () => void (await bus.stop()));
  await pool.query("create table effect (id text)");
  const sql = postgresJs(url, { max: 1, onnotice: () => undefined });
  onTestFinished(() => sql.end());
  const client = await pool.connect();
  onTestFinished(() => client.release());
  const ids = async (table: string): Promise<string[]> =>
    (await pool.query<{ id: string }>(`select id from ${table} order by id`)).rows.map(({ id }) => id);
  const left = async () => ({
    messages: await ids("(select id from sagabox.message union all select id from sagabox.scheduled) as x"),
    reserved: await ids("sagabox.published_id"),
  });
  return { pool, bus, client, sql, ids, left };
}

type House = Awaited<ReturnType<typeof setup>>;
type Run = (sql: string) => Promise<unknown>;
type Work = (tx: CallerTransaction, run: Run) => Promise<void>;

class Undo extends Error {}

/** A transaction of the caller's own. `work` throws Undo to have it rolled back. */
const drivers: Record<string, (house: House, isolation: string, work: Work) => Promise<void>> = {
  pg: async ({ client }, isolation, work) => {
    await client.query(`begin isolation level ${isolation}`);
    try {
      await work(client, (text) => client.query(text));
      await client.query("commit");
    } catch (error) {
      await client.query("rollback");
      if (!(error instanceof Undo)) throw error;
    }
  },
  "postgres.js": async ({ sql }, isolation, work) => {
    const beginning = sql.begin(`isolation level ${isolation}`, (tx) => work(tx, (text) => tx.unsafe(text)));
    await beginning.catch((error: unknown) => {
      if (!(error instanceof Undo)) throw error;
    });
  },
};

type Publish = (house: House, tx: CallerTransaction, id: string) => Promise<{ id: string }[]>;

const alone =
  (contract: typeof Noted, options: (id: string) => PublishOptions = () => ({})): Publish =>
  async ({ bus }, tx, id) => [await bus.publish(tx, contract, { n: 1 }, options(id))];

const ways: Record<string, Publish> = {
  usual: alone(Noted),
  "with headers": alone(Noted, () => ({ headers: { a: "b" } })),
  "an own id": alone(Noted, (id) => ({ id })),
  scheduled: alone(Noted, () => ({ delay: "1h" })),
  "scheduled with an own id": alone(Noted, (id) => ({ id, delay: "1h" })),
  "in strict order": alone(Strict as never),
  "to be flushed": alone(Noted, () => ({ flush: true })),
  "a batch": ({ bus }, tx) => bus.publishAll(tx, message(Noted, { n: 1 }), message(Noted, { n: 2 })),
  "a mixed batch": ({ bus }, tx, id) =>
    bus.publishAll(tx, message(Noted, { n: 1 }, { id }), message(Noted, { n: 2 }, { delay: "1h" })),
};

const isolations = ["read committed", "repeatable read", "serializable"];
const everywhere = Object.keys(drivers).flatMap((driver) => isolations.map((level) => [driver, level]));

test.each(everywhere)(
  "A1: %s, %s: commit leaves row and message, rollback leaves neither, and the message may come first",
  async (driver, isolation) => {
    const house = await setup();
    const [rows, messages]: string[][] = [[], []];
    for (const [way, publish] of Object.entries(ways)) {
      for (const first of ["row", "message"]) {
        for (const end of ["commit", "rollback"]) {
          const id = `${way}, ${first} first, ${end}`;
          await drivers[driver as string]?.(house, isolation as string, async (tx, run) => {
            if (first === "row") await run(`insert into effect values ('${id}')`);
            const published = await publish(house, tx, id);
            if (first === "message") await run(`insert into effect values ('${id}')`);
            if (end === "rollback") throw new Undo();
            rows?.push(id);
            messages?.push(...published.map((one) => one.id));
          });
        }
      }
    }
    expect(await house.ids("effect")).toEqual(rows?.toSorted());
    expect((await house.left()).messages).toEqual(messages?.toSorted());
    expect(messages?.length).toBe(22);
  },
);

test.each(everywhere)(
  "A1: %s, %s: what is published in a savepoint goes with it, also as the first write",
  async (driver, isolation) => {
    const house = await setup();
    const kept: string[] = [];
    await drivers[driver as string]?.(house, isolation as string, async (tx, run) => {
      for (const [way, publish] of Object.entries(ways)) {
        await run("savepoint s");
        await publish(house, tx, `${way} undone`);
        await run("rollback to savepoint s");
        await publish(house, tx, way).then((published) => kept.push(...published.map(({ id }) => id)));
        await run("release savepoint s");
      }
    });
    expect((await house.left()).messages).toEqual(kept.toSorted());
  },
);

test.each([
  ["after a row", "insert into effect values ('gone')", false],
  ["as the first write", "select 1", false],
  ["after a row, with a limit", "insert into effect values ('gone')", true],
  ["as the first write, with a limit", "select 1", true],
])("A1: pg: what is published %s and not awaited does not outlive a ROLLBACK", async (_, before, limited) => {
  const house = await setup({ limited });
  for (const [way, publish] of Object.entries(ways)) {
    await house.client.query("begin");
    await house.client.query(before);
    const publishing = publish(house, house.client, "mine").catch((error: unknown) => error);
    await house.client.query("rollback");
    expect(await publishing, way).toMatchObject({ code: "NOT_IN_TRANSACTION" });
  }
  expect(await house.left()).toEqual({ messages: [], reserved: [] });
});

/** Its data are found to be right when the test says so. */
function slow() {
  let goOn = (): void => undefined;
  const right = new Promise<boolean>((resolve) => (goOn = () => resolve(true)));
  return { Slow: event("slow", { schema: schema.refine(() => right) }), goOn: () => goOn() };
}

test.each(["row", "nothing"])(
  "A1: postgres.js: a publish beside a statement that fails does not outlive the rollback (%s was written before)",
  async (before) => {
    const { sql, bus, left } = await setup();
    const { Slow, goOn } = slow();
    let publishing: Promise<unknown> = Promise.resolve();
    const failing = sql.begin(async (tx) => {
      if (before === "row") await tx`insert into effect values ('gone')`;
      publishing = bus.publish(tx, Slow, { n: 1 });
      return Promise.all([publishing, tx`select 1 / 0`]);
    });
    await expect(failing).rejects.toThrow("division by zero");
    goOn();
    await expect(publishing).rejects.toMatchObject({ code: "NOT_IN_TRANSACTION" });
    expect((await left()).messages).toEqual([]);
  },
);

test("A1: postgres.js: a publish that was not awaited does not outlive a function that throws", async () => {
  const house = await setup();
  for (const [way, publish] of Object.entries(ways)) {
    let publishing: Promise<unknown> | undefined;
    const failing = house.sql.begin(async (tx) => {
      await tx`insert into effect values ('gone')`;
      publishing = new Promise((resolve) => setImmediate(resolve)).then(() => publish(house, tx, "mine"));
      publishing.catch(() => "told below");
      throw new Undo();
    });
    await expect(failing).rejects.toThrow(Undo);
    await expect(publishing, way).rejects.toMatchObject({ code: "NOT_IN_TRANSACTION" });
  }
  expect(await house.left()).toEqual({ messages: [], reserved: [] });
});

test("A3: of one id twice in a batch the first is written, in its place, and only of it that is said", async () => {
  const { pool, bus, client } = await setup();
  await client.query("begin");
  const published = await bus.publishAll(
    client,
    message(Noted, { n: 1 }, { id: "mine" }),
    message(Noted, { n: 2 }),
    message(Noted, { n: 3 }, { id: "mine" }),
  );
  await client.query("commit");
  expect(published.map(({ written }) => written)).toEqual([true, true, false]);
  const { rows } = await pool.query("select data::json ->> 'n' as n from sagabox.message order by seq");
  expect(rows).toEqual([{ n: "1" }, { n: "2" }]);
});

test.each(Object.keys(drivers))(
  "A3: %s: an id that was generated before can be given again, and changes nothing",
  async (driver) => {
    const house = await setup();
    const { bus } = house;
    const answers: boolean[] = [];
    let id = "";
    await drivers[driver]?.(house, "read committed", async (tx) => {
      ({ id } = await bus.publish(tx, Noted, { n: 1 }));
      answers.push((await bus.publish(tx, Noted, { n: 2 }, { id })).written);
    });
    await drivers[driver]?.(house, "read committed", async (tx, run) => {
      answers.push((await bus.publish(tx, Noted, { n: 3 }, { id })).written);
      answers.push((await bus.publish(tx, Noted, { n: 4 }, { id, delay: "1h" })).written);
      await run("insert into effect values ('goes on')");
    });
    await bus.transaction(async (tx) => {
      answers.push((await tx.publish(Noted, { n: 5 }, { id })).written);
      const own = await tx.publish(Noted, { n: 6 });
      answers.push((await tx.publish(Noted, { n: 7 }, { id: own.id })).written);
    });
    expect(answers).toEqual([false, false, false, false, false]);
    expect(await house.ids("effect")).toEqual(["goes on"]);
    expect((await house.left()).messages).toHaveLength(2);
  },
);

test("A12: messages of a key keep the order they were asked for in, also as the first that a transaction writes", async () => {
  const { bus, client, pool } = await setup();
  const Keyed = event("keyed", { schema, key: () => "k" });
  await client.query("begin");
  const first = bus.publish(client, Keyed, { n: 1 });
  await client.query("select 1");
  await client.query("select 1");
  const second = bus.publish(client, Keyed, { n: 2 });
  await Promise.all([first, second]);
  await client.query("commit");
  const { rows } = await pool.query<{ n: number }>(
    "select (data::json->>'n')::integer as n from sagabox.message order by seq",
  );
  expect(rows).toEqual([{ n: 1 }, { n: 2 }]);
});

test("A1: a publish nobody awaited does not land in the transaction of whoever has the client next", async () => {
  const { bus, client, left } = await setup();
  await client.query("begin");
  const forgotten = bus.publish(client, Noted, { n: 1 });
  const refused = expect(forgotten).rejects.toMatchObject({ code: "NOT_IN_TRANSACTION" });
  await client.query("rollback");
  await refused;
  await client.query("begin");
  await client.query("insert into effect values ('theirs')");
  await client.query("commit");
  expect((await left()).messages).toEqual([]);
});

test("F1: a saga whose start nobody awaited does not outlive the rollback", async () => {
  const { bus, client, pool } = await setup();
  const counted = saga("counted", { version: 1, input: schema, key: ({ n }) => String(n) })
    .run("count", () => undefined)
    .noUndo("it counts");
  bus.register(counted);
  await client.query("begin");
  const refused = expect(bus.start(client, counted, { n: 1 })).rejects.toMatchObject({
    code: "NOT_IN_TRANSACTION",
  });
  await client.query("rollback");
  await refused;
  expect((await pool.query("select 1 from sagabox.saga_instance")).rows).toEqual([]);
  await client.query("begin");
  await bus.start(client, counted, { n: 2 });
  await client.query("commit");
  expect((await pool.query("select correlation_id from sagabox.saga_instance")).rows).toEqual([
    { correlation_id: "2" },
  ]);
});
