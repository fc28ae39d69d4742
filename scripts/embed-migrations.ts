import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { writeMoveGuard } from "./move-guard.ts";

const folder = join(import.meta.dirname, "../src/storage/migrations");
const target = join(import.meta.dirname, "../src/storage/migrations.generated.ts");

/** The migration files as one TypeScript module, so that the built package needs no other files. */
export function embedMigrations(): string {
  const files = readdirSync(folder)
    .filter((name) => /^\d{4}_[a-z_]+\.sql$/.test(name))
    .toSorted();
  const entries = files.map((name) => {
    const sql = readFileSync(join(folder, name), "utf8");
    const breaking = sql.startsWith("-- breaking");
    const checksum = createHash("sha256").update(sql).digest("hex");
    return `  {\n    version: ${Number(name.slice(0, 4))},\n    name: ${JSON.stringify(name.slice(5, -4))},\n    breaking: ${breaking},\n    checksum: ${JSON.stringify(checksum)},\n    sql: ${JSON.stringify(sql)},\n  },\n`;
  });
  return `// Written by scripts/embed-migrations.ts from the files in migrations/. Do not edit.\nimport type { Migration } from "./migrate.ts";\n\nexport const migrations: readonly Migration[] = [\n${entries.join("")}];\n`;
}

if (process.argv[1] === import.meta.filename) {
  writeMoveGuard();
  writeFileSync(target, embedMigrations());
}
