import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import { deadLetterStore, listDeadLetters } from "../../src/dead-letter/index.ts";
import { migrateUp, pgDatabase } from "../../src/storage/index.ts";
import { temporaryDatabase } from "../support/database.ts";
import { program } from "../support/programs.ts";

const worker = program(new URL("./poison-worker.ts", import.meta.url));

async function runWorker(url: string, way: string): Promise<boolean> {
  const child = spawn(process.execPath, [worker, url, way], { stdio: "inherit" });
  const [code] = (await once(child, "exit")) as [number | null];
  return code === 0;
}

test.each(["SIGKILL", "exit"])(
  "rule 14: a message that ends the process (%s) is found out, and its neighbours are handled once",
  async (way) => {
    const { pool, url } = await temporaryDatabase({ leakGuard: false });
    const database = pgDatabase(pool);
    await migrateUp(database, "sagabox");
    await pool.query(
      "create table effect (consumer text, id text); create table run (consumer text, id text)",
    );
    const count = async (sql: string): Promise<number> =>
      Number((await pool.query<{ n: string }>(sql)).rows[0]?.n);

    let deaths = 0;
    while (!(await runWorker(url, way))) {
      deaths += 1;
      expect(deaths).toBeLessThan(10);
      // A broker redelivers once the dead worker's lease is over.
      const alive = "select count(*) as n from sagabox.member where lease_until > clock_timestamp()";
      await expect.poll(() => count(alive), { timeout: 5_000 }).toBe(0);
    }

    // Once in company, three times alone; never a fifth time.
    expect(deaths).toBe(4);
    expect(await count("select count(*) as n from run where id = 'killer' and consumer = 'billing'")).toBe(4);
    const letters = await listDeadLetters(deadLetterStore(database, "sagabox"));
    expect(letters).toMatchObject([
      { consumer: "billing", messageId: "killer", reason: "poison", errorType: "MESSAGE_KILLS_PROCESS" },
    ]);
    expect(letters).toHaveLength(1);
    const effects = await pool.query("select consumer, id, count(*)::int as times from effect group by 1, 2");
    expect(effects.rows).toHaveLength(19);
    expect(effects.rows.every((row: { times: number }) => row.times === 1)).toBe(true);
    expect(await count("select count(*) as n from sagabox.suspect")).toBe(0);
    expect(await count("select count(*) as n from sagabox.running")).toBe(0);
  },
  120_000,
);
