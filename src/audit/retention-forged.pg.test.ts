import { expect, test } from "vitest";
import { auditMonths } from "../../test/support/audit.ts";
import { rolesHarness } from "../../test/support/roles-harness.ts";
import { pgDatabase } from "../storage/index.ts";
import { verifyAudit } from "./verify.ts";

const NO_HASH = "00".repeat(32);

interface Forged {
  readonly actor?: string;
  readonly target?: string;
  /** JSON, or text that the upkeep would not write. */
  readonly after: string;
}

/** Three sealed months of 2025, and an operator role that writes entries about dropped months. */
async function setup() {
  const roles = await rolesHarness();
  const house = await auditMonths({ place: roles });
  const operator = await roles.as("operator");
  const forge = ({ actor = "sagabox", target = "saga_audit_log_202501", after }: Forged): Promise<unknown> =>
    operator.query(
      `insert into sagabox.audit_log (actor, action, target_kind, target_id, reason, after, outcome)
       values ($1, 'audit.retention', 'partition', $2, 'older than the retention', $3, 'done')`,
      [actor, target, after],
    );
  const kinds = async () => (await house.verify()).findings.map(({ kind, seal }) => [kind, seal]);
  return { ...house, operator, forge, kinds };
}

const says = (dropped: readonly object[], anchor: object = { number: "0", hash: NO_HASH }): string =>
  JSON.stringify({ dropped, anchor });
const january = { log: "saga", month: "2025-01-01" };

test.each(["null", "[]", "1", '"x"', "{}", '{"dropped":[]}', '{"dropped":[null],"anchor":{"number":"0"}}'])(
  "SEC-19: an entry about dropped months with content %s is a finding, and the rest is still verified",
  async (after) => {
    const { forge, verify, tamper } = await setup();
    await forge({ after });
    expect(await verify()).toMatchObject({
      ok: false,
      rows: 15,
      findings: [{ kind: "retention_mismatch", log: "action", id: "4" }],
    });
    await tamper("update sagabox.saga_audit_log set note = 'x' where id = 2");
    expect((await verify()).findings.map(({ kind }) => kind)).toEqual(["retention_mismatch", "row_changed"]);
  },
);

test("SEC-19: an operator's entry cannot make an emptied month count as dropped", async () => {
  const { forge, kinds, tamper, operator } = await setup();
  await tamper("delete from sagabox.saga_audit_log where saga_id = 'saga-2025-01-01'");
  expect(await kinds()).toEqual([["rows_missing", "2"]]);
  await forge({ after: says([january]) });
  expect(await kinds()).toEqual([
    ["retention_mismatch", null],
    ["rows_missing", "2"],
  ]);
  // About another table, which was really dropped.
  await forge({ target: "saga_audit_log_202001", after: says([january]) });
  expect(await kinds()).toContainEqual(["rows_missing", "2"]);
  // An operator may also verify the log, and gets the same findings.
  expect(await verifyAudit(pgDatabase(operator), "sagabox")).toMatchObject({ ok: false, findingCount: 2 });
});

test("SEC-19: an entry of the upkeep about another month does not make an emptied month count as dropped", async () => {
  const { kinds, tamper, tidy, pool } = await setup();
  await tamper("delete from sagabox.saga_audit_log where saga_id = 'saga-2025-03-01'");
  await tidy();
  const { rows } = await pool.query("select 1 from sagabox.audit_log where action = 'audit.retention'");
  expect(rows.length).toBeGreaterThan(0);
  expect(await kinds()).toContainEqual(["rows_missing", "6"]);
});

test("SEC-19: a month dropped by hand stays reported as missing after the upkeep drops other months", async () => {
  const { kinds, tidy, pool } = await setup();
  await pool.query("drop table sagabox.saga_audit_log_202503");
  await tidy();
  expect(await kinds()).toContainEqual(["rows_missing", "6"]);
});

test("SEC-19: seals removed by hand stay reported as missing after the upkeep drops other months", async () => {
  const { kinds, tidy, tamper, partitions, observer } = await setup();
  await tamper("delete from sagabox.audit_seal where number = 1");
  await tidy();
  expect(await partitions()).toContain("audit_seal_202501");
  expect(observer.of("audit.broken")).not.toEqual([]);
  expect(await kinds()).toContainEqual(["seal_missing", "1"]);
});

test("SEC-19: an entry with a wrong chain start is ignored, and the upkeep continues from the true start", async () => {
  const { forge, kinds, tidy, pool, verify, lines, seal } = await setup();
  const { rows } = await pool.query<{ hash: string }>(
    "select encode(hash, 'hex') as hash from sagabox.audit_seal where number = 2",
  );
  const elsewhere = { number: "2", hash: rows[0]?.hash };
  await forge({ target: "audit_seal_202001", after: says([], elsewhere) });
  expect(await kinds()).toEqual([["retention_mismatch", null]]);
  await lines(1);
  await seal();
  await tidy();
  await seal();
  const { findings, rows: compared } = await verify();
  expect(findings).toEqual([]); // the chain now starts after that anchor
  expect(compared).toBeGreaterThan(0);
  // An entry cannot revoke another entry.
  await forge({ target: "audit_seal_202001", after: says([]) });
  expect(await kinds()).toEqual([]);
});
