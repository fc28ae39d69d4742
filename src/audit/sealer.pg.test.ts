import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { auditHarness, line } from "../../test/support/audit.ts";
import { until } from "../../test/support/relays.ts";
import { defineStatement } from "../storage/index.ts";
import { AuditSealer, sealRound } from "./sealer.ts";
import { auditStatements } from "./statements.ts";
import { AuditWatch } from "./watch.ts";

test("SEC-19: with four writers and long transactions, no row is lost or added late, and the chain verifies", async () => {
  const { pool, sealer, seal, verify, observer } = await auditHarness({ batchSize: 20, max: 12 });
  const writer = async (name: string, rounds: number, long: boolean): Promise<void> => {
    for (let round = 0; round < rounds; round += 1) {
      const client = await pool.connect();
      try {
        await client.query("begin");
        await line(client, name, 1);
        // The other writers commit many times, with higher transaction ids, before this transaction commits.
        if (long) await client.query("select pg_sleep(0.15)");
        await line(client, name, 2);
        await client.query(round % 5 === 4 ? "rollback" : "commit");
      } finally {
        client.release();
      }
    }
  };
  await sealer.start();
  await Promise.all([
    writer("short-1", 60, false),
    writer("short-2", 60, false),
    writer("long-1", 10, true),
    writer("long-2", 10, true),
  ]);
  await sealer.stop();
  await seal();
  const { rows } = await pool.query<{ count: number }>(
    "select count(*)::integer as count from sagabox.saga_audit_log",
  );
  expect(rows[0]?.count).toBe(2 * (48 + 48 + 8 + 8));
  const report = await verify();
  expect(report.findings).toEqual([]);
  expect(report).toMatchObject({ ok: true, rows: rows[0]?.count, unsealed: { count: 0 } });
  expect(observer.of("audit.sealed").length).toBeGreaterThan(3);
}, 60_000);

test("SEC-19: rows of a running transaction and of later transactions are not sealed", async () => {
  const { pool, lines, sealer, seal, verify, final } = await auditHarness();
  await lines(1, "before");
  await final();
  const client = await pool.connect();
  await client.query("begin");
  await line(client, "open", 1);
  await lines(2, "after");
  expect(await sealer.seal()).toMatchObject({ rows: 1 });
  expect((await verify()).unsealed.count).toBe(2);
  await client.query("commit");
  client.release();
  expect(await seal()).toMatchObject({ rows: 3 });
  expect(await verify()).toMatchObject({ ok: true, rows: 4, unsealed: { count: 0 } });
});

test("a transaction larger than the batch size is sealed whole, and a large backlog in several seals", async () => {
  const { pool, lines, seal, verify } = await auditHarness({ batchSize: 10 });
  await pool.query(
    `insert into sagabox.saga_audit_log (saga_id, version, event_type, cause)
     select 'big', n, 'noted', 'x' from generate_series(1, 35) as n`,
  );
  await lines(25);
  expect(await seal()).toMatchObject({ rows: 60, seals: 4 });
  expect(await verify()).toMatchObject({ ok: true, rows: 60 });
});

test("transaction ids are compared as numbers, also when their length changes", async () => {
  const { pool, seal, verify } = await auditHarness({ batchSize: 4 });
  await pool.query(
    `insert into sagabox.saga_audit_log (xid, saga_id, version, event_type, cause)
     select n::text::xid8, 's', n, 'noted', 'x' from generate_series(5, 120, 5) as n`,
  );
  expect(await seal()).toMatchObject({ rows: 24, seals: 6 });
  expect(await verify()).toMatchObject({ ok: true, rows: 24, seals: 6, unsealed: { count: 0 } });
});

test("two sealers at the same time write one chain", async () => {
  const { database, observer, lines, final, verify } = await auditHarness({ batchSize: 5 });
  const options = { database, schema: "sagabox", observer, sealEveryMs: 1_000, batchSize: 5 };
  const sealers = [new AuditSealer(options), new AuditSealer(options)];
  await lines(30);
  await final();
  await Promise.all(sealers.flatMap((one) => [one.seal(), one.seal()]));
  await sealers[0]?.seal();
  expect(await verify()).toMatchObject({ ok: true, rows: 30, unsealed: { count: 0 } });
});

test("a killed sealer leaves no partial seal, and the next one continues", async () => {
  const { pool, url, lines, seal, verify, final } = await auditHarness();
  await lines(5);
  await seal();
  await lines(5, "s-2");
  await final();
  const killed = new pg.Client({ connectionString: url });
  killed.on("error", () => undefined);
  onTestFinished(() => killed.end().catch(() => undefined));
  await killed.connect();
  const { rows } = await killed.query<{ pid: number }>("select pg_backend_pid() as pid");
  await killed.query("begin");
  await killed.query("select pg_advisory_xact_lock(hashtextextended('sagabox.audit.sagabox', 0))");
  await killed.query(
    `insert into sagabox.audit_seal select number + 1, chain, log, month, xid_to, '99999999', saga_after, action_after,
            saga_top, action_top, row_count, leaves, sha256('half'), hash, clock_timestamp() from sagabox.audit_seal`,
  );
  expect(await seal()).toMatchObject({ rows: 0, seals: 0 });
  await pool.query("select pg_terminate_backend($1)", [rows[0]?.pid]);
  await until(async () => (await seal()).rows === 5);
  expect(await verify()).toMatchObject({ ok: true, seals: 2, rows: 10 });
});

test("a database restored with lower transaction ids gets a new chain with an audit entry", async () => {
  const { pool, database, lines, act, seal, verify, tamper, observer } = await auditHarness();
  // As restored from a dump: rows and seals with transaction ids that this server has never used.
  const old = (saga: string, xid: number): Promise<unknown> =>
    pool.query(
      `insert into sagabox.saga_audit_log (xid, saga_id, version, event_type, cause)
       select ($2::bigint + n)::text::xid8, $1, n, 'noted', 'x' from generate_series(1, 3) as n`,
      [saga, xid],
    );
  await old("sealed", 1_999_999_000);
  const sql = auditStatements('"sagabox"');
  const horizon = sql.head.text.replace("pg_snapshot_xmin(pg_current_snapshot())", "'2000000000'::xid8");
  const tx = await database.begin();
  expect(await sealRound(tx, { ...sql, head: defineStatement("test.head", horizon) }, 100)).toMatchObject({
    rows: 3,
  });
  await tx.commit();
  await old("not yet sealed", 2_000_000_000);

  expect(await verify()).toMatchObject({ ok: true, rows: 3 });
  expect(await seal()).toMatchObject({ rows: 3 }); // the remaining rows of the old chain, which is then closed
  expect(observer.of("audit.chain_begun")).toEqual([]);
  await lines(3, "new");
  await act("test.done");
  await until(async () => (await verify()).unsealed.count === 0 || (await seal()).rows < 0);
  expect(observer.of("audit.chain_begun")).toEqual([{ chain: 2 }]);
  expect(await verify()).toMatchObject({ ok: true, chains: 2, rows: 3 + 3 + 3 + 1 + 1 });
  const { rows } = await pool.query(
    "select actor, reason from sagabox.audit_log where action = 'audit.chain'",
  );
  expect(rows).toMatchObject([{ actor: "sagabox", reason: expect.stringContaining("restored") as string }]);
  const watch = new AuditWatch({ database, schema: "sagabox", observer, everyMs: 1_000, begin: () => 0 });
  expect(await watch.verifyNext()).toEqual([]);
  await tamper("update sagabox.saga_audit_log set note = 'x' where version = 2");
  expect(await watch.verifyNext()).toHaveLength(3);
  expect((await verify()).findings.map(({ kind, id }) => [kind, id])).toEqual([
    ["row_changed", "2"],
    ["row_changed", "5"],
    ["row_changed", "8"],
  ]);
});
