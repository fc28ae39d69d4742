import { expect, test } from "vitest";
import { auditHarness } from "../../test/support/audit.ts";

const LOG = "sagabox.saga_audit_log";
const SEAL = "sagabox.audit_seal";

/** Three seals: rows 1 to 4, rows 5 to 8 with an action, rows 9 to 12; then two unsealed rows. */
async function setup() {
  const house = await auditHarness();
  await house.lines(4);
  await house.seal();
  await house.lines(4, "s-2");
  await house.act("test.done");
  await house.seal();
  await house.lines(4, "s-3");
  const { head } = await house.seal();
  await house.lines(2, "s-4");
  return { ...house, head: head ?? "" };
}

test("I-20: an unchanged log verifies, and the report counts the unsealed rows", async () => {
  const { verify, head, pool } = await setup();
  const report = await verify();
  expect(report).toMatchObject({ ok: true, seals: 4, chains: 1, rows: 13, head, finished: true });
  expect(report.unsealed.count).toBe(2);
  const { rows } = await pool.query<{ log: string }>(`select log from ${SEAL} order by number`);
  expect(rows.map(({ log }) => log)).toEqual(["saga", "action", "saga", "saga"]);
});

test.each([
  ["a field", `update ${LOG} set note = 'nothing to see' where id = 6`, "row_changed", "6"],
  ["the text of a JSON column", `update ${LOG} set input = '{"a":1}' where id = 6`, "row_changed", "6"],
  ["null to an empty text", `update ${LOG} set note = '' where id = 6`, "row_changed", "6"],
  [
    "the time by a microsecond",
    `update ${LOG} set timestamp = timestamp + interval '1 us' where id = 6`,
    "row_changed",
    "6",
  ],
  ["a deletion", `delete from ${LOG} where id = 6`, "row_missing", "6"],
  [
    "another time, in another month",
    `update ${LOG} set timestamp = timestamp + interval '1 month' where id = 6`,
    "row_missing",
    "6",
  ],
  [
    "a row put into a sealed range",
    `insert into ${LOG} (xid, timestamp, saga_id, version, event_type, cause)
     select xid, timestamp, saga_id, 9, event_type, cause from ${LOG} where id = 6`,
    "row_added",
    "15",
  ],
  [
    "a row added to a sealed range of an empty month",
    `insert into ${LOG} (xid, timestamp, saga_id, version, event_type, cause)
     select xid, timestamp + interval '1 month', saga_id, 9, event_type, cause from ${LOG} where id = 6`,
    "row_added",
    "15",
  ],
  ["a duplicated row", `insert into ${LOG} select * from ${LOG} where id = 6`, "row_added", "6"],
  [
    "a row with the id of a transaction that never existed",
    `insert into ${LOG} (xid, saga_id, version, event_type, cause) values ('999999999', 's', 1, 'noted', 'x')`,
    "row_added",
    null,
  ],
])("SEC-19: %s is found and the row is named", async (_, sql, kind, id) => {
  const { verify, tamper } = await setup();
  await tamper(sql);
  const report = await verify();
  expect(report.ok).toBe(false);
  expect(report.findings[0]).toMatchObject({ kind, id });
  expect(report.findings[0]?.text).toContain(id ?? "saga 15");
});

test("SEC-19: two swapped rows are both reported", async () => {
  const { verify, tamper } = await setup();
  await tamper(
    `update ${LOG} as one set saga_id = other.saga_id, version = other.version, timestamp = other.timestamp
       from ${LOG} as other where (one.id, other.id) in ((6, 7), (7, 6))`,
  );
  const { findings } = await verify();
  expect(findings.map(({ kind, id }) => [kind, id])).toEqual([
    ["row_changed", "6"],
    ["row_changed", "7"],
  ]);
});

test("SEC-19: a changed entry of an operator is found", async () => {
  const { verify, tamper } = await setup();
  await tamper("update sagabox.audit_log set actor = 'eve'");
  expect((await verify()).findings).toMatchObject([
    { kind: "row_changed", log: "action", id: "1", seal: "2" },
  ]);
});

test("SEC-19: a seal changed together with its row is found", async () => {
  const { verify, tamper } = await setup();
  await tamper(
    `update ${LOG} set note = 'x' where id = 6`,
    `update ${SEAL} set leaves = (select leaves from ${SEAL} where number = 4) where number = 3`,
  );
  const { findings } = await verify();
  expect(findings[0]).toMatchObject({ kind: "seal_changed", seal: "3" });
});

test("SEC-19: a seal with a recomputed hash breaks the link of the next seal", async () => {
  const { verify, tamper } = await setup();
  await tamper(`update ${SEAL} set hash = sha256('forged') where number = 3`);
  const { findings } = await verify();
  expect(findings.map(({ kind, seal }) => [kind, seal])).toEqual([
    ["seal_changed", "3"],
    ["seal_changed", "4"],
  ]);
});

test.each([
  [1, "1"],
  [2, "2"],
  [3, "3"],
])("SEC-19: deleting seal %i is found", async (number, seal) => {
  const { verify, tamper } = await setup();
  await tamper(`delete from ${SEAL} where number = ${number}`);
  const { findings } = await verify();
  expect(findings).toMatchObject([{ kind: "seal_missing", seal }]);
});

test("SEC-19: a removed last seal is found only with an anchor", async () => {
  const { verify, tamper, head } = await setup();
  expect(await verify({ anchor: head })).toMatchObject({ ok: true });
  expect(await verify({ anchor: head.split(":")[1] ?? "" })).toMatchObject({ ok: true });
  await tamper(`delete from ${SEAL} where number = 4`, `delete from ${LOG} where id = 9`);
  expect(await verify()).toMatchObject({ ok: true, seals: 3 });
  const { findings } = await verify({ anchor: head });
  expect(findings).toMatchObject([{ kind: "anchor_missing", seal: "4" }]);
});

test("SEC-19: the process that wrote the last seal notices when it is removed", async () => {
  const { sealer, tamper, observer } = await setup();
  await tamper(`delete from ${SEAL} where number = 4`);
  await sealer.seal();
  expect(observer.of("audit.broken")).toMatchObject([{ kind: "seal_missing", seal: "4" }]);
});

test("SEC-19: a month dropped by hand is found", async () => {
  const { verify, pool } = await setup();
  const { rows } = await pool.query<{ name: string }>(
    `select distinct tableoid::regclass::text as name from ${LOG}`,
  );
  await pool.query(`drop table ${rows[0]?.name}`);
  const { findings } = await verify();
  expect(findings[0]).toMatchObject({ kind: "rows_missing", seal: "1" });
  expect(findings).toHaveLength(3);
});

test("an invalid anchor is refused", async () => {
  const { verify } = await auditHarness();
  await expect(verify({ anchor: "deadbeef" })).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
});

test("a stopped verification reports that it is not finished", async () => {
  const { verify } = await setup();
  const ending = new AbortController();
  const report = await verify({ signal: ending.signal, onProgress: () => ending.abort() });
  expect(report).toMatchObject({ finished: false, ok: true });
  expect(report.seals).toBeLessThan(4);
});
