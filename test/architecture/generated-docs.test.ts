import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { generatedDocs } from "../../scripts/build-docs.ts";
import { embedMigrations } from "../../scripts/embed-migrations.ts";
import { withMoveGuard } from "../../scripts/move-guard.ts";
import { listStatements, statementFiles, statementsFile } from "../../scripts/sql/statements-file.ts";

test("the pages made from code are current (otherwise: npx tsx --conditions=sagabox:source scripts/build-docs.ts)", async () => {
  for (const [path, text] of Object.entries(await generatedDocs())) {
    expect(readFileSync(new URL(`../../${path}`, import.meta.url), "utf8"), path).toBe(text);
  }
});

test("the migrations are current (otherwise: npx tsx --conditions=sagabox:source scripts/embed-migrations.ts)", () => {
  const { current, expected } = withMoveGuard();
  expect(current).toBe(expected);
  const embedded = new URL("../../src/storage/migrations.generated.ts", import.meta.url);
  expect(readFileSync(embedded, "utf8")).toBe(embedMigrations());
});

test("statements.sql is current (otherwise: npx tsx --conditions=sagabox:source scripts/build-sql.ts)", async () => {
  const committed = new URL("../../docs/reference/statements.sql", import.meta.url);
  expect(readFileSync(committed, "utf8")).toBe(await statementsFile());
});

test("statements.sql lists every statement of src", async () => {
  const listed = await listStatements();
  for (const file of statementFiles()) {
    const text = readFileSync(new URL(`../../src/${file}`, import.meta.url), "utf8");
    const names = listed.filter((statement) => statement.file === file).map(({ name }) => name);
    const calls = [...text.matchAll(/\bdefineStatement\(\s*(?:"([^"]+)"|`([^`]+)`)?/g)];
    expect(names.length, `statements listed of ${file}`).toBeGreaterThanOrEqual(calls.length);
    for (const [, literal, template] of calls) {
      if (literal !== undefined) expect(names, file).toContain(literal);
      // The name of a variant ends with what distinguishes it.
      const start = template?.split("${")[0];
      if (start !== undefined)
        expect(
          names.filter((name) => name.startsWith(start)),
          start,
        ).not.toEqual([]);
    }
  }
});
