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
function handle(
  harness: House,
  way: (typeof ways)[number],
  misbehave: (work: Work) => Promise<unknown>,
): void {
  const consumer = "billing";
  const work = async (id: string, query: Work["query"]): Promise<void> => {
    await query("insert into effect (consumer, id, note) values ($1, $2, 'first')", [consumer, id]);
    if (!id.startsWith("bad")) return;
    await misbehave({ id, query });
    await query("insert into effect (consumer, id, note) values ($1, $2, 'second')", [consumer, id]);
  };
  if (way === "as a bulk") {
    harness.registry.onBatch(
      OrderPlaced,
      { consumer, retry, batch: { size: 10, wait: 50 } },
      async (messages, { tx }) => {
        for (const { id } of messages) await work(id, (text, params) => tx.query(text, params));
      },
    );
    return;
  }
  const batch = way === "in a batch" ? { batch: { size: 10, wait: 50 } } : {};
  harness.registry.on(OrderPlaced, { consumer, retry, ...batch }, async ({ id }, { tx }) =>
    work(id, (text, params) => tx.query(text, params)),
  );
}

/** The client under each transaction, for SQL that does not go through `tx`. */
function clientsOf(harness: House): (work: Work) => Promise<pg.PoolClient> {
  const acquired = new Set<pg.PoolClient>();
  harness.pool.on("acquire", (client) => acquired.add(client));
  harness.pool.on("release", (_, client) => acquired.delete(client as pg.PoolClient));
  return async ({ query }) => {
    const { rows } = (await query("select pg_backend_pid() as pid")) as { rows: { pid: number }[] };
    const found = [...acquired].find(
      (client) => (client as unknown as { processID: number }).processID === rows[0]?.pid,
    );
    if (found === undefined) throw new Error("The client of this transaction is not known.");
    return found;
  };
}

const publish = (harness: House, ...ids: string[]): Promise<void> =>
  harness.publish(...ids.map((id) => aMessage({ id, key: id })));

const endings = ["rollback and chain", "rollback; begin", "commit and chain", "prepare transaction 'p'"];

test.each(endings.flatMap((text) => ways.map((way) => [text, way] as const)))(
  "%j in a handler, %s: the message becomes a dead letter, the others have their effect once",
  async (text, way) => {
    const harness = await consumers();
    handle(harness, way, ({ query }) => query(text).catch(() => undefined));
    await harness.start();
    await publish(harness, "a", "bad", "b");
    await harness.observer.until("consumer.processed", 2);
    await harness.observer.until("dead_letter.buried", 1);
    expect((await harness.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
    expect((await harness.deadLetters()).map(({ errorMessage }) => errorMessage)).toEqual([
      expect.stringContaining("was refused"),
    ]);
    expect(await harness.rows("select 1 from pg_prepared_xacts where database = current_database()")).toEqual(
      [],
    );
  },
);

test.each(ways)(
  "a handler that makes its own transaction read-only is not tried for ever, %s",
  async (way) => {
    const harness = await consumers();
    handle(harness, way, ({ query }) => query("set transaction read only"));
    await harness.start();
    await publish(harness, "a", "bad", "b");
    await harness.observer.until("consumer.processed", 2);
    await harness.observer.until("dead_letter.buried", 1);
    expect((await harness.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
  },
);

test.each(ways)("a rollback and chain that bypasses `tx` loses nothing, %s", async (way) => {
  const harness = await consumers();
  const clientOf = clientsOf(harness);
  handle(harness, way, async (work) => (await clientOf(work)).query("rollback and chain"));
  await harness.start();
  await publish(harness, "a", "bad", "b");
  await harness.observer.until("consumer.processed", 2);
  await harness.observer.until("dead_letter.buried", 1);
  expect((await harness.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
});

test.each([
  ["and chain", "commits"],
  ["and chain, then throws", "throws"],
])("a commit %s that does not go through `tx` is a dead letter at once, not a duplicate", async (_, how) => {
  const harness = await consumers();
  const clientOf = clientsOf(harness);
  handle(harness, "one by one", async (work) => {
    await (await clientOf(work)).query("commit and chain");
    if (how === "throws") throw new Error("and now this");
  });
  await harness.start();
  await publish(harness, "a", "bad", "b");
  await harness.observer.until("consumer.processed", 2);
  const [buried] = await harness.observer.until("dead_letter.buried", 1);
  expect(buried).toMatchObject({ reason: "rejected", error: expect.stringContaining("committed it early") });
  expect(harness.observer.of("consumer.duplicate")).toEqual([]);
  const notes = (await harness.effects()).map(({ id, note }) => `${id} ${note}`);
  expect(notes.sort()).toEqual(["a first", "b first", "bad first"]);
});

test("after a commit in a batch that bypasses `tx`, no message counts as a duplicate", async () => {
  const harness = await consumers();
  const clientOf = clientsOf(harness);
  handle(harness, "as a bulk", async (work) => (await clientOf(work)).query("commit and chain"));
  await harness.start();
  await publish(harness, "a", "bad", "b");
  await expect
    .poll(
      () =>
        harness.observer.of("consumer.processed").length +
          harness.observer.of("dead_letter.buried").length ===
        3,
    )
    .toBe(true);
  const buried = new Set(harness.observer.of("dead_letter.buried").map(({ id }) => id));
  expect(buried.has("bad")).toBe(true);
  expect(harness.observer.of("consumer.duplicate")).toEqual([]);
  const whole = (await harness.effects()).map(({ id }) => id);
  for (const id of ["a", "b"]) expect(buried.has(id) || whole.includes(id)).toBe(true);
});

test("inbox.process throws if the handler ended the transaction", async () => {
  const harness = await consumers();
  const inbox = new Inbox(harness.engine);
  const message = { id: "m", consumer: "billing", topic: "t", type: "order.placed", data: {} };
  const processing = inbox.process(message, async (_, { tx }) => {
    await tx.query("insert into effect (id) values ('m')");
    await tx.query("rollback and chain").catch(() => undefined);
  });
  await expect(processing).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  expect(await harness.effects()).toEqual([]);
  const again = await inbox.process(message, async (_, { tx }) => {
    await tx.query("insert into effect (id) values ('m')");
  });
  expect([again.kind, (await harness.effects()).length]).toEqual(["processed", 1]);
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
  const harness = await consumers();
  await harness.pool.query(`${raise(code)}; ${trigger}`);
  handle(harness, "one by one", () => Promise.resolve());
  await harness.start();
  await publish(harness, "a", "bad", "b");
  const [buried] = await harness.observer.until("dead_letter.buried", 1);
  expect(buried).toMatchObject({ id: "bad", reason: "exhausted", error: "not today" });
  await harness.observer.until("consumer.processed", 2);
  expect(harness.observer.of("consumer.retried").map(({ countsAsAttempt }) => countsAsAttempt)).toEqual([
    true,
  ]);
});

test.each(["22012", "40001", "57P01", "25006"])(
  "SQLSTATE %s raised under a statement handler counts as an attempt",
  async (code) => {
    const harness = await consumers();
    await harness.pool.query(`${raise(code)}; ${immediate}`);
    const statement = ({ id }: { readonly id: string }) => ({
      text: "insert into effect (consumer, id) select 'billing', $1::text from fresh",
      params: [id],
    });
    harness.registry.on(OrderPlaced, { consumer: "billing", retry, statement });
    await harness.start();
    await publish(harness, "a", "bad", "b");
    await harness.observer.until("dead_letter.buried", 1);
    await harness.observer.until("consumer.processed", 2);
    expect((await harness.effects()).map(({ id }) => id).sort()).toEqual(["a", "b"]);
  },
);

test("a wrong number of parameters fails the handler", async () => {
  const harness = await consumers();
  handle(harness, "one by one", ({ query }) => query("select $1::text", ["a", "b"]));
  await harness.start();
  await publish(harness, "bad");
  const [buried] = await harness.observer.until("dead_letter.buried", 1);
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
  const harness = await consumers();
  handle(harness, "one by one", async ({ query }) => {
    await query("set local work_mem = '64kB'");
    await query(limit);
    if (limit === idleLimit) await new Promise((resolve) => setTimeout(resolve, 100));
    await query(text);
  });
  await harness.start();
  await publish(harness, "bad");
  const [buried] = await harness.observer.until("dead_letter.buried", 1);
  expect(buried).toMatchObject({ reason: "exhausted", error: expect.stringContaining(error) });
  const counted = harness.observer.of("consumer.retried").map(({ countsAsAttempt }) => countsAsAttempt);
  expect([counted.filter((countsAsAttempt) => !countsAsAttempt).length, counted.at(-1)]).toEqual([20, true]);
});
