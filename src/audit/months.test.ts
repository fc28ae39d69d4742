import { expect, test } from "vitest";
import { monthPartition, planMonths } from "./months.ts";

const DAY_MS = 86_400_000;

test("months are attached three ahead, over the end of a year", () => {
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
