import { expect, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { explainStatements } from "./statements.ts";

test("explain: each look-up goes by an index, however much there is", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query("insert into sagabox.consumer_group (name) values ('billing'), ('stock')");
  for (const [table, lane] of [
    ["outbox", "n % 256"],
    ["queue", "256 + n % 512"],
  ]) {
    await pool.query(
      `insert into sagabox.${table} (lane, seq, stream, topic, type, message_id, written_on, due_at)
       select ${lane}, n, n % 500, 't', 'x', 'm' || n, current_date, now() from generate_series(1, 20000) as n`,
    );
  }
  await pool.query("analyze");
  const sql = explainStatements("sagabox");
  const plan = async (text: string, values: readonly unknown[]): Promise<string> => {
    const { rows } = await pool.query<{ "QUERY PLAN": string }>(`explain ${text}`, [...values]);
    return rows.map((row) => row["QUERY PLAN"]).join("\n");
  };
  for (const [statement, values] of [
    [sql.outbox, ["m7", 7, "7"]],
    [sql.queue, ["m7", 7]],
  ] as const) {
    const found = await plan(statement.text, values);
    expect(found).not.toMatch(/Seq Scan on (outbox|queue)/);
    expect(found).toMatch(/_stream/);
  }
});
