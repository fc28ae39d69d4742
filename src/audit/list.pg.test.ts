import { expect, test } from "vitest";
import { auditHarness, line } from "../../test/support/audit.ts";
import { toConditions, listAudit, type AuditFilter } from "./list.ts";
import { listStatement } from "./statements.ts";

test("entries of both logs are listed newest first, page by page, each exactly once", async () => {
  const { database, pool, lines, act } = await auditHarness();
  await lines(5);
  await act("test.one");
  // Rows of both logs from one transaction share its id.
  const client = await pool.connect();
  await client.query("begin");
  for (let n = 1; n <= 3; n += 1) {
    await line(client, "s-2", n);
    await client.query(
      "insert into sagabox.audit_log (actor, action, target_kind, outcome) values ('ada', 'test.both', 'test', 'done')",
    );
  }
  await client.query("commit");
  client.release();
  const all = await listAudit(database, "sagabox");
  expect(all).toHaveLength(12);
  const seen: string[] = [];
  for (let after: string | undefined; ;) {
    const page = await listAudit(database, "sagabox", {
      limit: 2,
      ...(after === undefined ? {} : { after }),
    });
    seen.push(...page.map(({ cursor }) => cursor));
    if (page.length === 0) break;
    after = page.at(-1)?.cursor;
  }
  expect(seen).toEqual(all.map(({ cursor }) => cursor));
});

test("each filter finds the matching entries in the logs that can contain them", async () => {
  const { database, lines, act, audit } = await auditHarness();
  await lines(2);
  await lines(1, "s-2");
  await act("test.one");
  await act("test.two", "bob");
  await audit.recordFailure(
    database,
    { actor: "bob", action: "test.two", target: { kind: "saga", id: "s-2" } },
    new Error("x"),
  );
  const found = async (filter: AuditFilter) =>
    (await listAudit(database, "sagabox", filter)).map((one) => `${one.action} ${one.target.id}`);
  expect(await found({ sagaId: "s-2" })).toEqual(["test.two s-2", "saga.step_executed s-2"]);
  expect(await found({ actor: "bob", outcome: "done" })).toEqual(["test.two 1"]);
  expect(await found({ outcome: "failed" })).toEqual(["test.two s-2"]);
  expect(await found({ action: "test.one" })).toEqual(["test.one 1"]);
  expect(await found({ action: "saga.step_executed", log: "saga", limit: 1 })).toEqual([
    "saga.step_executed s-2",
  ]);
  expect(await found({ target: { kind: "test" } })).toEqual(["test.two 1", "test.one 1"]);
  expect(await found({ target: { kind: "saga", id: "s-1" } })).toHaveLength(2);
  expect(await found({ traceId: "trace-s-1" })).toHaveLength(2);
  expect(await found({ to: new Date(0) })).toEqual([]);
  expect(await found({ from: new Date(Date.now() - 60_000) })).toHaveLength(6);
});

test.each<[AuditFilter, string]>([
  [{ limit: 0 }, "OPTIONS_INVALID"],
  [{ people: "yes" } as unknown as AuditFilter, "OPTIONS_INVALID"],
  [{ after: "1; drop table x" }, "OPTIONS_INVALID"],
  [{ from: new Date("x") }, "OPTIONS_INVALID"],
  [{ actr: "x" } as AuditFilter, "OPTIONS_UNKNOWN_KEY"],
])("%j is refused", (filter, code) => {
  expect(() => toConditions(filter)).toThrow(expect.objectContaining({ code }) as Error);
});

test("every search uses an index", async () => {
  const { pool } = await auditHarness();
  await pool.query(
    `insert into sagabox.saga_audit_log (saga_id, version, event_type, cause, user_id, trace_id)
     select 's-' || n / 5, n % 5 + 1, 'noted', 'x', case when n % 100 = 0 then 'ada' end, 't-' || n / 5
       from generate_series(1, 20000) as n`,
  );
  await pool.query(
    `insert into sagabox.audit_log (actor, action, target_kind, target_id, outcome, trace_id)
     select 'a-' || n % 500, 'x-' || n % 700, 'dead_letter', n::text, 'done', 't-' || n from generate_series(1, 20000) as n`,
  );
  await pool.query("vacuum analyze sagabox.saga_audit_log, sagabox.audit_log");
  const filters: readonly AuditFilter[] = [
    {},
    { after: "900.saga.100" },
    { people: true },
    { actor: "a-7" },
    { action: "x-7" },
    { sagaId: "s-77" },
    { traceId: "t-77" },
    { target: { kind: "dead_letter", id: "77" } },
  ];
  for (const filter of filters) {
    const { logs, conditions, params } = toConditions(filter);
    const { rows } = await pool.query<{ "QUERY PLAN": string }>(
      `explain (costs off) ${listStatement('"sagabox"', logs, conditions).text}`,
      [...params],
    );
    const plan = rows.map((row) => row["QUERY PLAN"]).join("\n");
    // The plan may read empty months in any way.
    const now = new Date().toISOString().slice(0, 7).replace("-", "");
    expect(plan, JSON.stringify(filter)).not.toMatch(new RegExp(`Seq Scan on (saga_)?audit_log_${now}`));
    expect(plan, JSON.stringify(filter)).toMatch(new RegExp(`Index.* Scan.* (saga_)?audit_log_${now}`));
  }
});
