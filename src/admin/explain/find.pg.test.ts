import { expect, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { findStatements, type FoundBy } from "./statements.ts";

test("explain: a search by key, correlation id or trace id reads a small part of the archive", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query(
    `insert into sagabox.message (id, written_on, seq, lane, kind, type, schema_version, topic, key, correlation_id,
                                  traceparent, source, priority, max_attempts, data, written_at, saga_id)
     select 'm' || n, current_date, n, n % 256, 'event', 't', 1, 'topic', 'order-' || n, md5('c' || n),
            '00-' || md5(n::text) || '-0123456789abcdef-01', 'shop', 5, 10, '{}', now() + n * interval '1 ms', 's' || n
       from generate_series(1, 40000) as n`,
  );
  await pool.query("vacuum sagabox.message");
  const client = await pool.connect();
  try {
    await client.query("begin");
    await client.query(findStatements("sagabox").avoidFullScans.text);
    const { rows: sizes } = await client.query<{ pages: number }>(
      `select sum(pg_relation_size(oid) / 8192)::integer as pages from pg_class
        where relname like 'message\\_%' and relkind = 'r' and relnamespace = 'sagabox'::regnamespace`,
    );
    const searches: readonly (readonly [FoundBy, string, readonly string[]])[] = [
      ["key", "'order-777'", ["m20007", "m777"]], // the second one has another key, and belongs to a saga of this key
      ["correlationId", "md5('c777')", ["m777"]],
      ["traceId", "md5('777')", ["m777"]],
    ];
    for (const [by, value, ids] of searches) {
      const { text } = findStatements("sagabox").messages(by);
      const sql = text
        .replaceAll("$1::text", value)
        .replaceAll("$2::integer", "5")
        .replaceAll("$3::text", "'{s20007}'");
      expect((await client.query(sql)).rows).toEqual(ids.map((id) => ({ id })));
      const { rows } = await client.query<{ "QUERY PLAN": string }>(`explain (analyze, timing off) ${sql}`);
      const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
      const read = [...plan.matchAll(/lossy=(\d+)/g)].reduce((sum, [, pages]) => sum + Number(pages), 0);
      expect(read, plan).toBeGreaterThan(0);
      expect(read, plan).toBeLessThan((sizes[0]?.pages ?? 0) / 2);
    }
    await client.query("rollback");
  } finally {
    client.release();
  }
});

test("explain: a message that autovacuum has not summarized yet is found", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  await pool.query(
    `insert into sagabox.message (id, written_on, seq, lane, kind, type, schema_version, topic, key, correlation_id,
                                  traceparent, source, priority, max_attempts, data, written_at)
     values ('m1', current_date, 1, 1, 'event', 't', 1, 'topic', 'o1', 'c1', '', 'shop', 5, 10, '{}', now())`,
  );
  const { rows } = await pool.query(findStatements("sagabox").messages("key").text, ["o1", 5, "{}"]);
  expect(rows).toEqual([{ id: "m1" }]);
});
