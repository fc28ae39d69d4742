import { expect, test } from "vitest";
import { auditHarness } from "../../test/support/audit.ts";
import { databaseForFile } from "../../test/support/database.ts";

const migrated = databaseForFile({ migrated: true });

test.each(["saga_audit_log", "audit_log", "audit_seal"])(
  "SEC-19: %s refuses to be changed, deleted from and emptied, whole or by the month",
  async (table) => {
    const harness = await auditHarness();
    await harness.lines(2);
    await harness.act("test.done");
    await harness.seal();
    const column = table === "audit_seal" ? "row_count" : "id";
    const { rows } = await harness.pool.query<{ part: string }>(
      `select tableoid::regclass::text as part from sagabox.${table} limit 1`,
    );
    for (const name of [`sagabox.${table}`, rows[0]?.part ?? "", `sagabox.${table}_default`]) {
      const refused = { code: "23001", message: expect.stringContaining("is append-only") as string };
      await expect(harness.pool.query(`truncate ${name}`)).rejects.toMatchObject(refused);
      if (name.endsWith("_default")) continue;
      await expect(harness.pool.query(`update ${name} set ${column} = 1`)).rejects.toMatchObject(refused);
      await expect(harness.pool.query(`delete from ${name}`)).rejects.toMatchObject(refused);
    }
    expect(await harness.verify()).toMatchObject({ ok: true });
  },
);

test("SEC-38: the function behind the triggers has a fixed search path, and other roles cannot call it", async () => {
  const { pool } = await migrated;
  const { rows } = await pool.query(
    `select proconfig::text as settings, has_function_privilege('pg_monitor', oid, 'execute') as open
       from pg_proc where proname = 'audit_refuse'`,
  );
  expect(rows).toEqual([{ settings: '{"search_path=pg_catalog, pg_temp"}', open: false }]);
});
