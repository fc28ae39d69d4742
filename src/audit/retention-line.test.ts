import { expect, test } from "vitest";
import { judgeRetentionLine, type RetentionLine } from "./retention-line.ts";

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
const alone = { left: new Set<string>(), begins: undefined };

test("SEC-19: a line of the upkeep is believed, also when more was dropped since", () => {
  expect(judgeRetentionLine(line, alone)).toEqual({ record });
  expect(judgeRetentionLine(line, { ...alone, begins: anchor })).toEqual({ record });
  expect(judgeRetentionLine(line, { ...alone, begins: { number: "9", hash: "" } })).toEqual({ record });
});

test.each<[string, Partial<RetentionLine>, Partial<Parameters<typeof judgeRetentionLine>[1]>, RegExp]>([
  ["nothing", { after: null }, {}, /says nothing/],
  ["no months", { after: JSON.stringify({ ...record, dropped: [{ log: "saga" }] }) }, {}, /says nothing/],
  [
    "no anchor",
    { after: JSON.stringify({ dropped: [], anchor: { number: "x", hash } }) },
    {},
    /says nothing/,
  ],
  ["somebody else", { actor: "ada" }, {}, /not written by the upkeep/],
  ["another target", { target_kind: "table" }, {}, /not written by the upkeep/],
  ["no name", { target_id: null }, {}, /no month of ours/],
  ["another table", { target_id: "outbox_202501" }, {}, /no month of ours/],
  ["what is there", {}, { left: new Set(["saga_audit_log_202501"]) }, /which is there/],
  ["the last day", { at: "2025-02-01T23:00:00.000000Z" }, {}, /2025-01 was dropped before it was over/],
  ["a later beginning", {}, { begins: { number: "3", hash } }, /lets the chain begin/],
  ["another hash", {}, { begins: { number: "4", hash: "cd".repeat(32) } }, /lets the chain begin/],
  [
    "a month that is not over",
    { after: JSON.stringify({ ...record, dropped: [{ log: "action", month: "2026-02-01" }] }) },
    {},
    /2026-02 was dropped before it was over/,
  ],
])("SEC-19: a line about %s is not", (_, changed, known, text) => {
  const judged = judgeRetentionLine({ ...line, ...changed }, { ...alone, ...known });
  expect(judged).toMatchObject({ finding: { kind: "retention_untrue", id: "7" } });
  expect("finding" in judged && judged.finding.text).toMatch(text);
});
