import pg from "pg";
import { onTestFinished } from "vitest";
import { pgDatabase } from "../../src/storage/index.ts";
import { temporaryDatabase } from "./database.ts";

/** A database with a table of notes, behind a pool of one connection. */
export async function notebook(options: pg.PoolConfig = {}) {
  const temporary = await temporaryDatabase();
  await temporary.pool.query("create table note (id int generated always as identity, text text unique)");
  const pool = new pg.Pool({ connectionString: temporary.url, max: 1, ...options });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  const notes = async () => {
    const { rows } = await temporary.pool.query<{ text: string }>("select text from note order by id");
    return rows.map((row) => row.text);
  };
  return { ...temporary, admin: temporary.pool, pool, database: pgDatabase(pool), notes };
}
