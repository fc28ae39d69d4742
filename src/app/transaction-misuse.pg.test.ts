import type pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createBus, event, saga, type BusTransaction } from "sagabox";
import { temporaryDatabase } from "../../test/support/database.ts";

const Happened = event("happened", { schema: z.object({ n: z.number() }) });
const Order = z.object({ orderId: z.string() });

async function service() {
  const { pool } = await temporaryDatabase({ max: 20, migrated: true });
  await pool.query("create table note (text text)");
  const bus = createBus({ service: "test", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const acquired = new Set<pg.PoolClient>();
  pool.on("acquire", (client) => acquired.add(client));
  /** Runs SQL on the connection of the transaction as an object mapper on top of its client would. */
  const behind = async (tx: Pick<BusTransaction, "query">, text: string): Promise<void> => {
    const { rows } = await tx.query<{ pid: number }>("select pg_backend_pid() as pid");
    for (const client of acquired) {
      if ((client as unknown as { processID: number }).processID === rows[0]?.pid) await client.query(text);
    }
  };
  const rows = async (sql: string) => (await pool.query<{ text: string }>(sql)).rows.map(({ text }) => text);
  return {
    bus,
    behind,
    notes: () => rows("select text from note order by text"),
    outbox: () => rows("select message_id as text from sagabox.outbox"),
  };
}

test.each(["rollback and chain", "rollback; begin", "commit and chain"])(
  "bus.transaction does not resolve after %j, and publishes nothing",
  async (text) => {
    const { bus, notes, outbox } = await service();
    const working = bus.transaction(async (tx) => {
      await tx.query("insert into note values ('a')");
      await tx.publish(Happened, { n: 1 });
      await tx.query(text).catch(() => undefined);
      await tx.query("insert into note values ('b')");
    });
    await expect(working).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
    expect([await notes(), await outbox()]).toEqual([[], []]);
  },
);

test.each([
  ["rollback and chain", "TRANSACTION_CLOSED", []],
  ["rollback; begin", "TRANSACTION_CLOSED", []],
  ["commit and chain", "TRANSACTION_COMMITTED", ["a"]],
])("bus.transaction sees %j that does not go through `tx`", async (text, code, left) => {
  const { bus, behind, notes, outbox } = await service();
  const working = bus.transaction(async (tx) => {
    await tx.query("insert into note values ('a')");
    await tx.publish(Happened, { n: 1 });
    await behind(tx, text);
  });
  await expect(working).rejects.toMatchObject({ code });
  expect([await notes(), await outbox()]).toEqual([left, []]);
});

test("a savepoint that does not go through `tx` publishes nothing that it took back", async () => {
  const { bus, behind, notes, outbox } = await service();
  const working = bus.transaction(async (tx) => {
    await tx.query("insert into note values ('a')");
    await behind(tx, "savepoint s");
    await tx.publish(Happened, { n: 1 }).catch(() => undefined);
    await behind(tx, "rollback to s").catch(() => undefined);
  });
  await expect(working).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  expect([await notes(), await outbox()]).toEqual([[], []]);
});

test.each([
  ["through `tx`", "rollback and chain", 2],
  ["through `tx`", "commit and chain", 2],
  ["behind its back", "rollback and chain", 2],
  ["behind its back", "commit and chain", 1],
])("a tx step of a saga that runs, %s, %s fails after its attempts", async (way, text, runs) => {
  const { bus, behind, notes } = await service();
  let ran = 0;
  const order = saga("order", { version: 1, input: Order, key: ({ orderId }) => orderId })
    .tx(
      "book",
      async ({ tx }) => {
        ran += 1;
        await tx.query(`insert into note values ('${ran}')`);
        await (way === "through `tx`" ? tx.query(text).catch(() => undefined) : behind(tx, text));
      },
      { retry: { maxAttempts: 2, firstDelay: 1 } },
    )
    .noUndo("a test");
  bus.register(order);
  await bus.run();
  const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o" }));
  await expect.poll(async () => (await bus.sagas.show(sagaId)).status).toMatch(/^(compensated|failed)$/);
  expect([ran, await notes()]).toEqual([runs, runs === 1 ? ["1"] : []]);
});

test.each(["40001", "57P01", "22012"])(
  "a tx step of a saga whose trigger raises %s at COMMIT fails after its attempts",
  async (code) => {
    const { bus, notes } = await service();
    await bus.transaction(async (tx) => {
      await tx.query(
        `create function fail() returns trigger language plpgsql as
           'begin raise exception ''not today'' using errcode = ''${code}''; end';
         create constraint trigger later after insert on note deferrable initially deferred
           for each row execute function fail()`,
      );
    });
    const order = saga("order", { version: 1, input: Order, key: ({ orderId }) => orderId })
      .tx("book", async ({ tx }) => void (await tx.query("insert into note values ('a')")), {
        retry: { maxAttempts: 2, firstDelay: 1 },
      })
      .noUndo("a test");
    bus.register(order);
    await bus.run();
    const { sagaId } = await bus.transaction((tx) => bus.start(tx, order, { orderId: "o" }));
    await expect.poll(async () => (await bus.sagas.show(sagaId)).status).toBe("compensated");
    expect(await notes()).toEqual([]);
  },
);
