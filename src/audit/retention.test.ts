import { expect, test } from "vitest";
import { judgeRetentionLine, monthPartition, planMonths, type RetentionLine } from "./retention.ts";

const DAY_MS = 86_400_000;

test("partitions are planned three months ahead, across the end of a year", () => {
  const { attach, retire } = planMonths("audit_log", {
    now: "2026-11-01",
    existing: ["audit_log_202611", "audit_log_202612"],
    retentionMs: 400 * DAY_MS,
  });
  expect(attach).toEqual([
    { table: "audit_log", name: "audit_log_202701", month: "2027-01-01", next: "2027-02-01" },
    { table: "audit_log", name: "audit_log_202702", month: "2027-02-01", next: "2027-03-01" },
  ]);
  expect(retire).toEqual([]);
});

test("a month is dropped when its last day is older than the retention, the oldest first", () => {
  const existing = ["audit_log_202510", "audit_log_202509", "audit_log_202508"];
  const plan = (retentionDays: number) =>
    planMonths("audit_log", { now: "2026-11-01", existing, retentionMs: retentionDays * DAY_MS }).retire;
  expect(plan(396).map(({ name }) => name)).toEqual(["audit_log_202508", "audit_log_202509"]);
  expect(plan(397).map(({ name }) => name)).toEqual(["audit_log_202508"]);
});

test.each(["2026-11-02", "2026-13-01", "2026-1-01", "'; drop table x; --"])("%s is not a month", (month) => {
  expect(() => monthPartition("audit_log", month)).toThrow("is not the first day of a month");
});

const hash = "ab".repeat(32);
const anchor = { number: "4", hash };
const record = { dropped: [{ log: "saga", month: "2025-01-01" }] as const, anchor };
const line: RetentionLine = {
  id: "7",
  at: "2026-03-01T10:00:00.000000Z",
  actor: "sagabox",
  target_kind: "partition",
  target_id: "saga_audit_log_202501",
  after: JSON.stringify(record),
};
const facts = { existing: new Set<string>(), start: undefined };

test("SEC-19: an entry of the upkeep is accepted, also after later drops", () => {
  expect(judgeRetentionLine(line, facts)).toEqual({ record });
  expect(judgeRetentionLine(line, { ...facts, start: anchor })).toEqual({ record });
  expect(judgeRetentionLine(line, { ...facts, start: { number: "9", hash: "" } })).toEqual({ record });
});

test.each<[string, Partial<RetentionLine>, Partial<Parameters<typeof judgeRetentionLine>[1]>, RegExp]>([
  ["no content", { after: null }, {}, /format that the upkeep writes/],
  [
    "no months",
    { after: JSON.stringify({ ...record, dropped: [{ log: "saga" }] }) },
    {},
    /format that the upkeep writes/,
  ],
  [
    "no anchor",
    { after: JSON.stringify({ dropped: [], anchor: { number: "x", hash } }) },
    {},
    /format that the upkeep writes/,
  ],
  ["another actor", { actor: "ada" }, {}, /not written by the upkeep/],
  ["another target", { target_kind: "table" }, {}, /not written by the upkeep/],
  ["no name", { target_id: null }, {}, /no monthly partition/],
  ["another table", { target_id: "outbox_202501" }, {}, /no monthly partition/],
  ["an existing partition", {}, { existing: new Set(["saga_audit_log_202501"]) }, /but it still exists/],
  [
    "an unfinished month",
    { at: "2025-02-01T23:00:00.000000Z" },
    {},
    /2025-01 was dropped before it was over/,
  ],
  ["an anchor after the chain start", {}, { start: { number: "3", hash } }, /does not match the start/],
  ["another hash", {}, { start: { number: "4", hash: "cd".repeat(32) } }, /does not match the start/],
  [
    "an unfinished dropped month",
    { after: JSON.stringify({ ...record, dropped: [{ log: "action", month: "2026-02-01" }] }) },
    {},
    /2026-02 was dropped before it was over/,
  ],
])("SEC-19: an entry with %s is rejected", (_, changed, known, text) => {
  const judged = judgeRetentionLine({ ...line, ...changed }, { ...facts, ...known });
  expect(judged).toMatchObject({ finding: { kind: "retention_mismatch", id: "7" } });
  expect("finding" in judged && judged.finding.text).toMatch(text);
});
