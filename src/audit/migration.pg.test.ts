import { expect, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { migrateUp, pgDatabase } from "../storage/index.ts";
import { migrations } from "../storage/migrations.generated.ts";
import { until } from "../../test/support/relays.ts";
import { silentObserver } from "../telemetry/index.ts";
import { AuditSealer } from "./sealer.ts";
import { verifyAudit } from "./verify.ts";

test("lines from before there were months are kept, each in its month, and are sealed first", async () => {
  const { pool } = await temporaryDatabase();
  const database = pgDatabase(pool);
  await migrateUp(
    database,
    "sagabox",
    migrations.filter(({ version }) => version < 8),
  );
  await pool.query(
    `insert into sagabox.saga_audit_log (saga_id, version, event_type, cause, user_id, input, at)
     select 's-' || n % 7, n, 'noted', 'x', 'ada', '{"by": {"actor": "ada", "reason": "ticket 7"}}',
            now() - n * interval '3 hours'
       from generate_series(1, 1200) as n`,
  );
  await migrateUp(database, "sagabox");
  const { rows } = await pool.query<{ part: string; reason: string; count: number }>(
    `select tableoid::regclass::text as part, min(reason) as reason, count(*)::integer as count
       from sagabox.saga_audit_log group by 1 order by 1`,
  );
  expect(rows.length).toBeGreaterThanOrEqual(5);
  expect(rows.every(({ part, reason }) => /_\d{6}$/.test(part) && reason === "ticket 7")).toBe(true);
  expect(rows.reduce((sum, { count }) => sum + count, 0)).toBe(1_200);
  const sealer = new AuditSealer({
    database,
    schema: "sagabox",
    observer: silentObserver,
    sealEveryMs: 1_000,
    batchSize: 500,
  });
  const next =
    "insert into sagabox.saga_audit_log (saga_id, version, event_type, cause) values ('new', 1, 'noted', 'x')";
  await pool.query(`${next} returning id`).then(({ rows: [row] }) => expect(row).toEqual({ id: "1201" }));
  await until(async () => {
    await sealer.seal();
    return (await verifyAudit(database, "sagabox")).unsealed.count === 0;
  });
  expect(await verifyAudit(database, "sagabox")).toMatchObject({ ok: true, rows: 1_201, chains: 1 });
});

test("a version from before the months refuses to work beside them: it would delete lines that are append-only", async () => {
  const { pool } = await temporaryDatabase();
  const database = pgDatabase(pool);
  await migrateUp(database, "sagabox");
  const older = migrations.filter(({ version }) => version < 8);
  await expect(migrateUp(database, "sagabox", older)).rejects.toMatchObject({
    code: "STORAGE_TOO_NEW",
    message: expect.stringContaining("migration 8 (audit)"),
  });
});
