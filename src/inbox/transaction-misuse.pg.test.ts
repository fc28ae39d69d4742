import type pg from "pg";
import { expect, test } from "vitest";
import { z } from "zod";
import { event } from "../message/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";
import { Inbox } from "./index.ts";

const OrderPlaced = event("order.placed", { schema: z.object({ n: z.number().optional() }) });
const retry = { firstDelay: 1, maxDelay: 2, maxAttempts: 2 } as const;

type House = Awaited<ReturnType<typeof consumers>>;

interface Work {
  readonly id: string;
  readonly query: (text: string, params?: readonly unknown[]) => Promise<unknown>;
}

const ways = ["one by one", "in a batch", "as a bulk"] as const;

/** Registers a handler that runs `misbehave` for messages whose id starts with "bad", between two effects. */
function handle(house: House, way: (typeof ways)[number], misbehave: (work: Work) => Promise<unknown>): void {
  const consumer = "billing";
  const work = async (id: string, query: Work["query"]): Promise<void> => {
    await query("insert into effect (consumer, id, note) values ($1, $2, 'first')", [consumer, id]);
    if (!id.startsWith("bad")) return;
    await misbehave({ id, query });
    await query("insert into effect (consumer, id, note) values ($1, $2, 'second')", [consumer, id]);
  };
  if (way === "as a bulk") {
    house.registry.onBatch(
      OrderPlaced,
      { consumer, retry, batch: { size: 10, wait: 50 } },
      async (messages, { tx }) => {
        for (const { id } of messages) await work(id, (text, params) => tx.query(text, params));
      },
    );
    return;
  }
  const batch = way === "in a batch" ? { batch: { size: 10, wait: 50 } } : {};
  house.registry.on(OrderPlaced, { consumer, retry, ...batch }, async ({ id }, { tx }) =>
    work(id, (text, params) => tx.query(text, params)),
  );
}

/** The client under each transaction, for SQL that does not go through `tx`. */
function clientsOf(house: House): (work: Work) => Promise<pg.PoolClient> {
  const acquired = new Set<pg.PoolClient>();
  house.pool.on("acquire", (client) => acquired.add(client));
  house.pool.on("release", (_, client) => acquired.delete(client as pg.PoolClient));
  return async ({ query }) => {
    const { rows } = (await query("select pg_backend_pid() as pid")) as { rows: { pid: number }[] };
    const found = [...acquired].find(
      (client) => (client as unknown as { processID: number }).processID === rows[0]?.pid,
    );
    if (found === undefined) throw new Error("The client of this transaction is not known.");
    return found;
  };
}

const publish = (house: House, ...ids: string[]): Promise<void> =>
  house.publish(...ids.map((id) => aMessage({ id, key: id })));

const endings = ["rollback and chain", "rollback; begin", "commit and chain", "prepare transaction 'p'"];

test.each(endings.flatMap((text) => ways.map((way) => [text, way] as const)))(
  "%j in a handler, %s: the message becomes a dead letter, the others have their effect once",
  async (text, way) => {
    const house = await consumers();
    handle(house, way, ({ query }) => query(text).catch(() => undefined));
    await house.start();
    await publish(house, "a", "bad", "b");
    await house.observer.until("consumer.processed", 2);
    await house.observer.until("dead_letter.buried", 1);
    expect((await house.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
    expect((await house.deadLetters()).map(({ errorMessage }) => errorMessage)).toEqual([
      expect.stringContaining("was refused"),
    ]);
    expect(await house.rows("select 1 from pg_prepared_xacts where database = current_database()")).toEqual(
      [],
    );
  },
);

test.each(ways)(
  "a handler that makes its own transaction read-only is not tried for ever, %s",
  async (way) => {
    const house = await consumers();
    handle(house, way, ({ query }) => query("set transaction read only"));
    await house.start();
    await publish(house, "a", "bad", "b");
    await house.observer.until("consumer.processed", 2);
    await house.observer.until("dead_letter.buried", 1);
    expect((await house.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
  },
);

test.each(ways)("a rollback and chain that does not go through `tx` loses nothing, %s", async (way) => {
  const house = await consumers();
  const clientOf = clientsOf(house);
  handle(house, way, async (work) => (await clientOf(work)).query("rollback and chain"));
  await house.start();
  await publish(house, "a", "bad", "b");
  await house.observer.until("consumer.processed", 2);
  await house.observer.until("dead_letter.buried", 1);
  expect((await house.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
});

test.each([
  ["and chain", "commits"],
  ["and chain, then throws", "throws"],
])("a commit %s that does not go through `tx` is a dead letter at once, not a duplicate", async (_, how) => {
  const house = await consumers();
  const clientOf = clientsOf(house);
  handle(house, "one by one", async (work) => {
    await (await clientOf(work)).query("commit and chain");
    if (how === "throws") throw new Error("and now this");
  });
  await house.start();
  await publish(house, "a", "bad", "b");
  await house.observer.until("consumer.processed", 2);
  const [buried] = await house.observer.until("dead_letter.buried", 1);
  expect(buried).toMatchObject({ reason: "rejected", error: expect.stringContaining("committed it early") });
  expect(house.observer.of("consumer.duplicate")).toEqual([]);
  const notes = (await house.effects()).map(({ id, note }) => `${id} ${note}`);
  expect(notes.sort()).toEqual(["a first", "b first", "bad first"]);
});

test("a commit in a batch that does not go through `tx` leaves no message of it for a duplicate", async () => {
  const house = await consumers();
  const clientOf = clientsOf(house);
  handle(house, "as a bulk", async (work) => (await clientOf(work)).query("commit and chain"));
  await house.start();
  await publish(house, "a", "bad", "b");
  await expect
    .poll(
      () =>
        house.observer.of("consumer.processed").length + house.observer.of("dead_letter.buried").length === 3,
    )
    .toBe(true);
  const buried = new Set(house.observer.of("dead_letter.buried").map(({ id }) => id));
  expect(buried.has("bad")).toBe(true);
  expect(house.observer.of("consumer.duplicate")).toEqual([]);
  const whole = (await house.effects()).map(({ id }) => id);
  for (const id of ["a", "b"]) expect(buried.has(id) || whole.includes(id)).toBe(true);
});

test("inbox.process tells its caller that the transaction was ended inside", async () => {
  const house = await consumers();
  const inbox = new Inbox(house.engine);
  const message = { id: "m", consumer: "billing", topic: "t", type: "order.placed", data: {} };
  const processing = inbox.process(message, async (_, { tx }) => {
    await tx.query("insert into effect (id) values ('m')");
    await tx.query("rollback and chain").catch(() => undefined);
  });
  await expect(processing).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  expect(await house.effects()).toEqual([]);
  const again = await inbox.process(message, async (_, { tx }) => {
    await tx.query("insert into effect (id) values ('m')");
  });
  expect([again.kind, (await house.effects()).length]).toEqual(["processed", 1]);
});

const raise = (code: string): string =>
  `create function fail() returns trigger language plpgsql as
     'begin if new.id like ''bad%'' then raise exception ''not today'' using errcode = ''${code}''; end if; return new; end'`;
const deferred = `create constraint trigger later after insert on effect deferrable initially deferred
                    for each row execute function fail()`;
const immediate = "create trigger now before insert on effect for each row execute function fail()";

const codes = [
  "22012",
  "40001",
  "40P01",
  "55P03",
  "57014",
  "57P01",
  "08006",
  "53100",
  "25006",
  "25P02",
  "23505",
];

test.each(
  codes.flatMap((code) => [[code, "at once", immediate] as const, [code, "at COMMIT", deferred] as const]),
)("SQLSTATE %s raised by a trigger of the user %s counts as an attempt", async (code, _, trigger) => {
  const house = await consumers();
  await house.pool.query(`${raise(code)}; ${trigger}`);
  handle(house, "one by one", () => Promise.resolve());
  await house.start();
  await publish(house, "a", "bad", "b");
  const [buried] = await house.observer.until("dead_letter.buried", 1);
  expect(buried).toMatchObject({ id: "bad", reason: "exhausted", error: "not today" });
  await house.observer.until("consumer.processed", 2);
  expect(house.observer.of("consumer.retried").map(({ charged }) => charged)).toEqual([true]);
});

test.each(["22012", "40001", "57P01", "25006"])(
  "SQLSTATE %s raised under a statement handler counts as an attempt",
  async (code) => {
    const house = await consumers();
    await house.pool.query(`${raise(code)}; ${immediate}`);
    const statement = ({ id }: { readonly id: string }) => ({
      text: "insert into effect (consumer, id) select 'billing', $1::text from fresh",
      params: [id],
    });
    house.registry.on(OrderPlaced, { consumer: "billing", retry, statement });
    await house.start();
    await publish(house, "a", "bad", "b");
    await house.observer.until("dead_letter.buried", 1);
    await house.observer.until("consumer.processed", 2);
    expect((await house.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
  },
);

test("a wrong number of parameters is the handler's own failure", async () => {
  const house = await consumers();
  handle(house, "one by one", ({ query }) => query("select $1::text", ["a", "b"]));
  await house.start();
  await publish(house, "bad");
  const [buried] = await house.observer.until("dead_letter.buried", 1);
  expect(buried).toMatchObject({ reason: "exhausted", error: expect.stringContaining("bind message") });
});

const idleLimit = "set local idle_in_transaction_session_timeout = 10";
const sorting =
  "select count(*) from (select n from generate_series(1, 400000) n order by n desc offset 1) as s";

test.each([
  [
    "a statement that is always too slow",
    "set local statement_timeout = 1",
    "select pg_sleep(60)",
    "timeout",
  ],
  ["a statement that needs too much", "set local temp_file_limit = '1MB'", sorting, "temp_file_limit"],
  ["a transaction that is always idle for too long", idleLimit, "", "connection"],
  ["a transaction that was made read-only", "set transaction read only", "select 1", "read-only"],
])("%s ends as a dead letter", async (_, limit, text, error) => {
  const house = await consumers();
  handle(house, "one by one", async ({ query }) => {
    await query("set local work_mem = '64kB'");
    await query(limit);
    if (limit === idleLimit) await new Promise((resolve) => setTimeout(resolve, 100));
    await query(text);
  });
  await house.start();
  await publish(house, "bad");
  const [buried] = await house.observer.until("dead_letter.buried", 1);
  expect(buried).toMatchObject({ reason: "exhausted", error: expect.stringContaining(error) });
  const counted = house.observer.of("consumer.retried").map(({ charged }) => charged);
  expect([counted.filter((charged) => !charged).length, counted.at(-1)]).toEqual([20, true]);
});
