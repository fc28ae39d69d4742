import { expect, test } from "vitest";
import { auditMonths } from "../../test/support/audit.ts";

test("SEC-19: expired months are dropped, and the chain verifies from its anchor", async () => {
  const { verify, tidy, partitions, lines, seal, tamper, observer } = await auditMonths();
  expect(await verify()).toMatchObject({ ok: true, rows: 15, seals: 6 });
  await tidy();
  // The newest seal is kept regardless of its age, because the next seal follows it.
  expect(await partitions()).toEqual(["audit_seal_202503"]);
  expect(await verify()).toMatchObject({ ok: true, droppedRows: 5, seals: 2, rows: 0 });
  await lines(3);
  await seal();
  await tidy();
  expect(await partitions()).toEqual([]);
  await seal();
  expect(await verify()).toMatchObject({ ok: true, droppedRows: 0, unsealed: { count: 0 } });
  const dropped = observer.of("history.partition").filter(({ action }) => action === "dropped");
  expect(dropped).toHaveLength(9);
  await tamper(
    `insert into sagabox.saga_audit_log (xid, saga_id, version, event_type, cause) values ('5', 's', 1, 'noted', 'x')`,
  );
  expect((await verify()).findings).toMatchObject([{ kind: "row_added", log: "saga" }]);
});

test("F3: a month is kept while it has entries of a stored instance", async () => {
  const { verify, tidy, partitions, pool } = await auditMonths();
  await pool.query(
    `insert into sagabox.saga_instance (id, saga_type, definition_version, correlation_id, status, input, state, trace_id,
            traceparent, message_correlation_id, created_at)
     values ('saga-2025-02-01', 'slow', 1, 'k', 'running', '{}', '{}', '', '', '', '2025-02-01')`,
  );
  await tidy();
  expect(await partitions()).toEqual(["audit_seal_202502", "audit_seal_202503", "saga_audit_log_202502"]);
  expect(await verify()).toMatchObject({ ok: true, rows: 4, droppedRows: 1 + 5 });
  await pool.query("delete from sagabox.saga_instance");
  await tidy();
  expect(await partitions()).toEqual(["audit_seal_202503"]);
  expect(await verify()).toMatchObject({ ok: true });
});

test("a month with unsealed rows is kept", async () => {
  const { tidy, partitions, pool } = await auditMonths();
  await pool.query(
    `insert into sagabox.audit_log (timestamp, actor, action, target_kind, outcome)
     values ('2025-01-02', 'ada', 'test.late', 'test', 'done')`,
  );
  await tidy();
  expect(await partitions()).toContain("audit_log_202501");
  expect(await partitions()).toContain("audit_seal_202501");
});

test("SEC-19: a month with missing sealed rows is kept as evidence and reported", async () => {
  const { tidy, partitions, tamper, observer, verify } = await auditMonths();
  await tamper("delete from sagabox.saga_audit_log where id = 1");
  await tidy();
  expect(await partitions()).toContain("saga_audit_log_202501");
  expect(observer.of("audit.broken")).toMatchObject([{ kind: "row_missing" }]);
  expect((await verify()).findings).toMatchObject([{ kind: "row_missing", id: "1" }]);
});

test("months are attached ahead during writes, and reject truncate like the others", async () => {
  const { tidy, pool, observer } = await auditMonths();
  await pool.query("drop table sagabox.audit_log_" + (await lastMonth(pool)));
  await tidy();
  const attached = observer.of("history.partition").filter(({ action }) => action === "attached");
  expect(attached).toHaveLength(1);
  const name = `sagabox.${attached[0]?.partition}`;
  await expect(pool.query(`truncate ${name}`)).rejects.toMatchObject({ code: "23001" });
  const { rows } = await pool.query(
    "select count(*)::integer as triggers from pg_trigger where tgrelid = $1::regclass",
    [name],
  );
  expect(rows).toEqual([{ triggers: 2 }]);
});

async function lastMonth(pool: {
  query: (sql: string) => Promise<{ rows: { name: string }[] }>;
}): Promise<string> {
  const { rows } = await pool.query(
    "select right(relname, 6) as name from pg_class where relkind = 'r' and relname ~ '^audit_log_[0-9]{6}$' order by 1 desc limit 1",
  );
  return rows[0]?.name ?? "";
}
