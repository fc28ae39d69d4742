import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { schemaFile } from "../../scripts/sql/schema-file.ts";
import { temporaryDatabase } from "../../test/support/database.ts";

const committed = new URL("../../docs/reference/schema.sql", import.meta.url);

test("schema.sql is what the migrations make (otherwise: npx tsx --conditions=sagabox:source scripts/build-sql.ts)", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  expect(readFileSync(committed, "utf8")).toBe(await schemaFile(pool));
});

test("a changed column shows in schema.sql", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query("alter table sagabox.reply alter column body drop not null");
  expect(await schemaFile(pool)).not.toBe(readFileSync(committed, "utf8"));
});
