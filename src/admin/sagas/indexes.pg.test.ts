import { expect, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { adminStatements, type FilterName } from "./statements.ts";

async function setup() {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query(
    `insert into sagabox.saga_instance
       (id, saga_type, definition_version, correlation_id, status, input, state, trace_id, traceparent,
        message_correlation_id, completed_at, waits_for)
     select 'id-' || lpad(n::text, 6, '0'), 'type-' || n % 3, 1, 'key-' || n, 'completed', '{}', '{}', '', '',
            'message-' || n, now(), null
       from generate_series(1, 20000) as n`,
  );
  await pool.query("vacuum analyze sagabox.saga_instance");
  const sql = adminStatements("sagabox");
  const plan = async (text: string, values: readonly unknown[]): Promise<string> => {
    const { rows } = await pool.query<{ "QUERY PLAN": string }>(`explain ${text}`, [...values]);
    return rows.map((row) => row["QUERY PLAN"]).join("\n");
  };
  return { sql, plan };
}

test.each<[FilterName, string, string]>([
  ["key", "key-77", "saga_instance_correlation"],
  ["correlationId", "message-77", "saga_instance_message_correlation"],
])("F3: a look-up by %s uses its index", async (name, value, index) => {
  const { sql, plan } = await setup();
  expect(await plan(sql.listSagas([name]).text, [50, value])).toContain(index);
});

test("F3: the search for stuck instances finds its suspects by index", async () => {
  const { sql, plan } = await setup();
  const found = await plan(sql.stuck.text, [600_000, null, 100]);
  expect(found).toContain("saga_instance_open");
  expect(found).toContain("saga_instance_due");
});
