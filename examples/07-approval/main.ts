import { randomUUID } from "node:crypto";
import pg from "pg";
import { createBus, type Bus } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { approveExpense, ExpenseDecided } from "./approval-saga.ts";
import { mail } from "./mail.ts";

const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/tutorial" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 20 });
await pool.query("create table if not exists expense (id text not null, state text not null)");

async function open(): Promise<Bus> {
  const bus = createBus({ service: "expenses", database: pool, log: "error" });
  await bus.migrate();
  bus.register(approveExpense);
  await bus.run();
  return bus;
}

async function submit(bus: Bus, employee: string): Promise<{ expenseId: string; sagaId: string }> {
  const expenseId = randomUUID();
  const { sagaId } = await bus.transaction((tx) =>
    bus.start(tx, approveExpense, { expenseId, employee, cents: 4900 }),
  );
  return { expenseId, sagaId };
}

async function report(bus: Bus, employee: string, expenseId: string, sagaId: string): Promise<void> {
  const { status } = await bus.sagas.result(approveExpense, sagaId, { timeout: "1m" });
  const { rows } = await pool.query<{ state: string }>("select state from expense where id = $1", [
    expenseId,
  ]);
  console.log(`The expense of ${employee} is ${rows[0]?.state}; its saga is ${status}.`);
}

// #region restart
const before = await open();
const ann = await submit(before, "ann");
await before.stop(); // a release, a crash, a long weekend: what waits, waits in the database
const bus = await open();
// #endregion restart

// #region decide
await bus.transaction((tx) => tx.publish(ExpenseDecided, { expenseId: ann.expenseId, approved: true }));
await report(bus, "ann", ann.expenseId, ann.sagaId);
// #endregion decide

const bob = await submit(bus, "bob");
await bus.transaction((tx) => tx.publish(ExpenseDecided, { expenseId: bob.expenseId, approved: false }));
await report(bus, "bob", bob.expenseId, bob.sagaId);

const eve = await submit(bus, "eve");
await report(bus, "eve", eve.expenseId, eve.sagaId);
console.log(`The manager got ${mail.about("expense of eve")} reminders about it.`);

await bus.stop();
await pool.end();
await server?.stop();
