import { createBus } from "sagabox";
import { drizzle } from "drizzle-orm/node-postgres";
import { expect, test } from "vitest";
import { createBus as createBusOfSources } from "../../src/index.ts";
import { temporaryDatabase } from "../support/database.ts";

test("the packages of this folder are installed, and sagabox is this checkout", async () => {
  const { pool } = await temporaryDatabase();
  const db = drizzle(pool);
  const { rows } = await db.execute("select 1 as one");
  expect(rows).toEqual([{ one: 1 }]);
  expect(createBus).toBe(createBusOfSources);
});
