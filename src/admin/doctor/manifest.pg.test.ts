import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { doctorStatements } from "./statements.ts";
import { manifest } from "./manifest.generated.ts";
import type { SchemaPart } from "./schema-checks.ts";

test("the manifest is what the migrations make (run with TEST_WRITE_MANIFEST=1 to write it anew)", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  const { rows } = await pool.query<SchemaPart>(doctorStatements('"sagabox"').parts.text, ['"sagabox"']);
  const parts = rows.map(({ kind, name, shape }) => ({ kind, name, shape }));
  if (process.env["TEST_WRITE_MANIFEST"] === "1") {
    const lines = parts.map((part) => `  ${JSON.stringify(part)},\n`).join("");
    const text = `// Written by manifest.pg.test.ts from a fresh schema. Do not edit.\nimport type { SchemaPart } from "./schema-checks.ts";\n\nexport const manifest: readonly SchemaPart[] = [\n${lines}];\n`;
    writeFileSync(join(import.meta.dirname, "manifest.generated.ts"), text);
    return;
  }
  expect(manifest).toEqual(parts);
  expect(rows.filter(({ invalid }) => invalid === true)).toEqual([]);
});
