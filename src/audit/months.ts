/** The tables that are kept by the month. Seals last: they go after what they cover. */
export const monthlyTables = ["saga_audit_log", "audit_log", "audit_seal"] as const;
export type MonthlyTable = (typeof monthlyTables)[number];

/** One month of one table. All of it becomes part of SQL texts, so only `monthPartition` makes it. */
export interface MonthPartition {
  readonly table: MonthlyTable;
  readonly name: string;
  /** First day, and first day of the month behind it, in UTC. */
  readonly month: string;
  readonly next: string;
}

export interface MonthPlan {
  readonly attach: readonly MonthPartition[];
  readonly retire: readonly MonthPartition[];
}

const MONTHS_AHEAD = 3;

export function monthPartition(table: MonthlyTable, month: string): MonthPartition {
  if (!/^\d{4}-(0[1-9]|1[0-2])-01$/.test(month))
    throw new Error(`"${month}" is not the first day of a month.`);
  const name = `${table}_${month.slice(0, 4)}${month.slice(5, 7)}`;
  return { table, name, month, next: addMonths(month, 1) };
}

/** Pure: which months lack a partition, and which ended longer ago than the retention. */
export function planMonths(
  table: MonthlyTable,
  {
    now,
    existing,
    retentionMs,
  }: { readonly now: string; readonly existing: readonly string[]; readonly retentionMs: number },
): MonthPlan {
  const ahead = Array.from({ length: MONTHS_AHEAD + 1 }, (_, n) => monthPartition(table, addMonths(now, n)));
  const oldestMs = Date.parse(now) - retentionMs;
  return {
    attach: ahead.filter(({ name }) => !existing.includes(name)),
    retire: existing
      .map((name) => monthPartition(table, `${name.slice(-6, -2)}-${name.slice(-2)}-01`))
      .filter(({ next }) => Date.parse(next) <= oldestMs)
      .toSorted((a, b) => (a.month < b.month ? -1 : 1)),
  };
}

function addMonths(month: string, months: number): string {
  const [year = 0, number = 1] = month.split("-").map(Number);
  return new Date(Date.UTC(year, number - 1 + months, 1)).toISOString().slice(0, 10);
}
