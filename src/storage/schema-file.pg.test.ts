import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { schemaFile } from "../../scripts/sql/schema-file.ts";
import { listStatements } from "../../scripts/sql/statements-file.ts";
import { temporaryDatabase } from "../../test/support/database.ts";

const committed = new URL("../../docs/reference/schema.sql", import.meta.url);

// These name tables of the user or partitions that do not exist here.
const ELSEWHERE =
  /^(sagabox\.inbox\.(once|claimed)|requestStatements\.keep|flowStatements\.record|partitionStatements\..*|remedies\..*)$/;

test("schema.sql is what the migrations make (otherwise: npx tsx --conditions=sagabox:source scripts/build-sql.ts)", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  expect(readFileSync(committed, "utf8")).toBe(await schemaFile(pool));
});

test("a changed column shows in schema.sql", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query("alter table sagabox.reply alter column body drop not null");
  expect(await schemaFile(pool)).not.toBe(readFileSync(committed, "utf8"));
});

test("the server accepts every listed statement", async () => {
  const { pool } = await temporaryDatabase({ migrated: true, max: 1 });
  const refused: string[] = [];
  for (const { name, text } of await listStatements()) {
    if (!/^\s*(with|select|insert|update|delete)\s/.test(text) || ELSEWHERE.test(name)) continue;
    await pool.query(`prepare checked as ${text}`).then(
      () => pool.query("deallocate all"),
      (error: Error) => refused.push(`${name}: ${error.message}`),
    );
  }
  expect(refused).toEqual([]);
});
