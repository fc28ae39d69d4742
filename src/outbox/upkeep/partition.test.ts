import { expect, test } from "vitest";
import { addDays, dailyTables, partition, planPartitions } from "./history.ts";

const [message, receipt] = dailyTables;
const attached = (...names: string[]) => names.map((name) => ({ name, attached: true }));

test("an empty schema gets today and the seven days after it", () => {
  const plan = planPartitions(message, { today: "2026-12-28", existing: [], retentionDays: 30 });
  expect(plan.attach.map(({ name }) => name)).toEqual([
    "message_20261228",
    "message_20261229",
    "message_20261230",
    "message_20261231",
    "message_20270101",
    "message_20270102",
    "message_20270103",
    "message_20270104",
  ]);
  expect(plan.retire).toEqual([]);
});

test("only days without a partition are attached; a detached one counts as existing", () => {
  const existing = [
    ...attached("receipt_20260301", "receipt_20260302", "receipt_20260303"),
    { name: "receipt_20260305", attached: false },
  ];
  const plan = planPartitions(receipt, { today: "2026-03-01", existing, retentionDays: 30 });
  expect(plan.attach.map(({ day }) => day)).toEqual(["2026-03-04", "2026-03-06", "2026-03-07", "2026-03-08"]);
});

test("a partition is retired when its whole day is older than the retention", () => {
  const existing = [
    ...attached("message_20260129", "message_20260130"),
    { name: "message_20260101", attached: false },
  ];
  const plan = planPartitions(message, { today: "2026-03-01", existing, retentionDays: 30 });
  expect(plan.retire).toEqual([
    { ...partition(message, "2026-01-29"), attached: true },
    { ...partition(message, "2026-01-01"), attached: false },
  ]);
});

test("days with rows in the default partition get their own", () => {
  const plan = planPartitions(message, {
    today: "2026-03-01",
    existing: [],
    retentionDays: 30,
    strays: ["2026-02-27", "2026-03-02"],
  });
  expect(plan.attach.map(({ day }) => day).slice(0, 4)).toEqual([
    "2026-02-27",
    "2026-03-01",
    "2026-03-02",
    "2026-03-03",
  ]);
});

test.each([
  ["when the service runs", { inUse: true }],
  ["when rows of today exist", { strays: ["2026-03-01"] }],
])("today gets no partition %s, because writes to the default one would be refused", (_, input) => {
  const plan = planPartitions(message, { today: "2026-03-01", existing: [], retentionDays: 30, ...input });
  expect(plan.attach.map(({ day }) => day).slice(0, 2)).toEqual(["2026-03-02", "2026-03-03"]);
});

test("tables with similar names are ignored", () => {
  const existing = attached("message_20261399", "message_default", "message_00000000", "other_20200101");
  expect(planPartitions(message, { today: "2026-03-01", existing, retentionDays: 30 }).retire).toEqual([]);
});

test("invalid days are refused", () => {
  for (const day of ["2026-02-30", "2026-1-1", "", "2026-01-01'; drop table x; --"]) {
    expect(() => partition(message, day)).toThrow("is not a day");
  }
});

test("addDays() crosses the ends of months and years", () => {
  expect([addDays("2024-02-28", 1), addDays("2026-01-01", -1)]).toEqual(["2024-02-29", "2025-12-31"]);
});
