import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { temporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";

const readme = readFileSync(join(import.meta.dirname, "../../README.md"), "utf8");

test("the example of the README bills its order", async () => {
  const { pool, url } = await temporaryDatabase();
  await pool.query("create table orders (id text not null); create table bills (order_id text not null)");
  vi.stubEnv("SAGABOX_LOG_LEVEL", "silent").stubEnv("DATABASE_URL", url);
  const { bus } = await import("../../examples/guides/readme.ts");
  onTestFinished(async () => void (await bus.stop()));
  const bills = async () => (await pool.query("select order_id from bills")).rows;
  await until(async () => (await bills()).length > 0);
  expect(await bills()).toEqual([{ order_id: "order-1" }]);
  expect((await bus.inbox.stats("billing"))[0]).toMatchObject({ consumer: "billing", total: 1 });
});

test("the README says how many tables there are", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  const { rows } = await pool.query<{ tables: number }>(
    `select count(*)::int as tables
       from pg_class
      where relnamespace = 'sagabox'::regnamespace and relkind in ('r', 'p') and not relispartition`,
  );
  expect(readme).toContain(`a schema of ${rows[0]?.tables} tables in your database`);
});
