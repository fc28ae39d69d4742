import { mkdtempSync, rmSync, writeFileSync, chmodSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { startEmbeddedPostgres } from "../src/embedded/index.ts";
import { migrateUp, pgDatabase } from "../src/storage/index.ts";
import { schemaFile } from "./sql/schema-file.ts";
import { statementsFile } from "./sql/statements-file.ts";

const reference = join(import.meta.dirname, "../docs/reference");

/** Writes docs/reference/schema.sql and docs/reference/statements.sql. */
async function main(): Promise<void> {
  writeFileSync(join(reference, "statements.sql"), await statementsFile());
  const folder = mkdtempSync(join(tmpdir(), "sagabox-schema-"));
  // As root the server runs under another account, which must be able to reach its files.
  chmodSync(folder, 0o755);
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "data"), auth: "trust" });
  const pool = new pg.Pool({ connectionString: server.url });
  try {
    const database = pgDatabase(pool);
    await migrateUp(database, "sagabox");
    writeFileSync(join(reference, "schema.sql"), await schemaFile(pool));
    await database.close();
  } finally {
    await pool.end();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
