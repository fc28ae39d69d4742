import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { listDaysBetween } from "./collector.ts";
import { chunkStatements, collectorStatements, ledgerStatements } from "./statements.ts";

test("days are listed across the end of a month and a leap day", () => {
  expect(listDaysBetween("2028-02-28", "2028-03-01")).toEqual(["2028-02-28", "2028-02-29", "2028-03-01"]);
  expect(listDaysBetween("2028-03-02", "2028-03-01")).toEqual([]);
});

test("every statement uses an index, even with a large archive", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  const hex = "md5(n::text) || md5(n::text)";
  await pool.query(`
    insert into sagabox.blob (key, store, bytes, sha256, stored_at)
    select 'aaaaaaaaaaaa/2026-01-01/' || md5(n::text), 's3', 1, ${hex}, now() - n * interval '1 minute'
      from generate_series(1, 20000) as n;
    insert into sagabox.blob_use (key, used_by) select key, 'm' || row_number() over () from sagabox.blob;
    update sagabox.blob set doomed_at = now() where key like '%aa';
    insert into sagabox.blob_chunk (key, n, bytes) select key, 0, 'x' from sagabox.blob;
    insert into sagabox.message (id, written_on, seq, lane, kind, type, schema_version, topic, correlation_id, traceparent,
                                 source, priority, max_attempts, data, written_at)
    select 'm' || n, current_date, n, 0, 'event', 't', 1, 't', 'c', 'x', 's', 5, 1, '{}', now()
      from generate_series(1, 20000) as n;
    insert into sagabox.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, trace_id,
                                       traceparent, message_correlation_id)
    select 'i' || n, 't', 1, 'k' || n, 'running', '{}', '{}', '', '', '' from generate_series(1, 5000) as n;
    analyze;`);
  const keys = `{${(await pool.query<{ key: string }>("select key from sagabox.blob limit 200")).rows.map(({ key }) => key).join(",")}}`;
  const collector = collectorStatements("sagabox");
  const chunks = chunkStatements("sagabox");
  const statements = [
    [collector.candidates, [86_400_000, "-infinity", "", 500]],
    [collector.doom, [keys, 86_400_000]],
    [collector.doomed, ["", 500]],
    [collector.forget, [keys]],
    [collector.unknown, [keys]],
    [collector.doomUnfinished, [86_400_000]],
    [ledgerStatements("sagabox").use, [keys, "m1", null, null]],
    [ledgerStatements("sagabox").touch, ["aaaaaaaaaaaa/2026-01-01/x"]],
    [ledgerStatements("sagabox").complete, ["aaaaaaaaaaaa/2026-01-01/x", 1, "0".repeat(64)]],
    [collector.discard, ["aaaaaaaaaaaa/2026-01-01/x"]],
    [chunks.read, ["aaaaaaaaaaaa/2026-01-01/x", 0, 4]],
    [chunks.list, ["aaaaaaaaaaaa/2026-01-02/", "aaaaaaaaaaaa/2026-01-02/~", 1_000]],
    [chunks.remove, [keys]],
  ] as const;
  for (const [{ name, text }, params] of statements) {
    const { rows } = await pool.query<{ "QUERY PLAN": string }>(`explain ${text}`, [...params]);
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    expect(plan.replaceAll(/Seq Scan on \S*message_(?:default|p?\d+)\S*/g, ""), name).not.toMatch(
      /Seq Scan on (?:blob|message|saga_instance|blob_use|blob_chunk)\b/,
    );
    expect(plan, name).not.toMatch(/hashed SubPlan/);
  }
});
