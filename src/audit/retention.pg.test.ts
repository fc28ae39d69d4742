import { expect, test } from "vitest";
import { auditHouse } from "../../test/support/audit.ts";
import { statement } from "../storage/index.ts";
import { sealRound } from "./seal-round.ts";
import { auditStatements } from "./statements.ts";
import { tidyMonths } from "./tidy-months.ts";

const DAY_MS = 86_400_000;
const MONTHS = ["2025-01-01", "2025-02-01", "2025-03-01"];

/** Three months of long ago, each with four lines of a saga and one action, sealed at their end. */
async function setup() {
  const house = await auditHouse();
  const { pool, database } = house;
  for (const month of MONTHS) {
    for (const table of ["saga_audit_log", "audit_log", "audit_seal"]) {
      await pool.query(
        `create table sagabox.${table}_${month.slice(0, 7).replace("-", "")} partition of sagabox.${table}
         for values from ('${month}T00:00:00Z') to (timestamptz '${month}T00:00:00Z' + interval '1 month')`,
      );
    }
    await pool.query(
      `insert into sagabox.saga_audit_log (at, saga_id, version, event_type, cause)
       select timestamptz '${month} 12:00Z', 'saga-${month}', n, 'noted', 'x' from generate_series(1, 4) as n`,
    );
    await pool.query(
      `insert into sagabox.audit_log (at, actor, action, target_kind, outcome)
       values ('${month} 12:00Z', 'ada', 'test.done', 'test', 'done')`,
    );
    await house.final();
    const sql = auditStatements('"sagabox"');
    const then = sql.head.text.replace("clock_timestamp()", `timestamptz '${month} 13:00Z'`);
    const tx = await database.begin();
    await sealRound(tx, { ...sql, head: statement("test.head", then) }, 100);
    await tx.commit();
  }
  const partitions = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ name: string }>(
      "select relname as name from pg_class where relkind = 'r' and relname ~ 'audit.*_2025[0-9]{2}$' order by 1",
    );
    return rows.map(({ name }) => name);
  };
  const tidy = () => tidyMonths(database, "sagabox", { retentionMs: 400 * DAY_MS, observer: house.observer });
  return { ...house, partitions, tidy };
}

test("SEC-19: old months are dropped whole, and the chain verifies from its anchor on", async () => {
  const { verify, tidy, partitions, lines, seal, tamper, observer } = await setup();
  expect(await verify()).toMatchObject({ ok: true, rows: 15, seals: 6 });
  await tidy();
  // The last seal of all stays, whatever its age: the next one follows it.
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

test("F3: a month stays as long as an instance that is not forgotten has lines in it", async () => {
  const { verify, tidy, partitions, pool } = await setup();
  await pool.query(
    `insert into sagabox.saga_instance (id, type, definition_version, correlation_id, status, input, state, trace_id,
            traceparent, message_correlation_id, started_at)
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

test("a month with rows that are not sealed yet is not dropped", async () => {
  const { tidy, partitions, pool } = await setup();
  await pool.query(
    `insert into sagabox.audit_log (at, actor, action, target_kind, outcome)
     values ('2025-01-02', 'ada', 'test.late', 'test', 'done')`,
  );
  await tidy();
  expect(await partitions()).toContain("audit_log_202501");
  expect(await partitions()).toContain("audit_seal_202501");
});

test("SEC-19: a month in which sealed rows are missing is kept as evidence, and told", async () => {
  const { tidy, partitions, tamper, observer, verify } = await setup();
  await tamper("delete from sagabox.saga_audit_log where id = 1");
  await tidy();
  expect(await partitions()).toContain("saga_audit_log_202501");
  expect(observer.of("audit.broken")).toMatchObject([{ kind: "row_missing" }]);
  expect((await verify()).findings).toMatchObject([{ kind: "row_missing", id: "1" }]);
});

test("months are attached ahead while others write, and refuse to be emptied like the rest", async () => {
  const { tidy, pool, observer } = await setup();
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
