/** The tables that are kept by the day, and the column that says which. */
export const dailyTables = [
  { table: "message", column: "written_on" },
  { table: "receipt", column: "sent_on" },
] as const;

export type DailyTable = (typeof dailyTables)[number];

/** One day of one table. `day` is an ISO date in UTC; both become part of SQL texts, so only `partition` makes them. */
export interface Partition {
  readonly table: DailyTable["table"];
  readonly column: DailyTable["column"];
  readonly name: string;
  readonly day: string;
}

export interface ExistingPartition {
  readonly name: string;
  readonly attached: boolean;
}

export interface PartitionPlan {
  readonly attach: readonly Partition[];
  /** Too old: to be detached, unless that was done already, and dropped. */
  readonly retire: readonly (Partition & { readonly attached: boolean })[];
}

export interface PlanInput {
  readonly today: string;
  readonly existing: readonly ExistingPartition[];
  readonly retentionDays: number;
  /** Days with rows in the default partition. */
  readonly strays?: readonly string[];
  /**
   * Somebody may be writing just now. A row on its way into the default partition is refused when its day gets a
   * partition of its own meanwhile, so today stays where it is until it is over.
   */
  readonly inUse?: boolean;
}

const DAY_MS = 86_400_000;
const DAYS_AHEAD = 7;

export function partition(of: DailyTable, day: string): Partition {
  const time = Date.parse(`${day}T00:00:00Z`);
  if (!/^\d{4}-\d{2}-\d{2}$/.test(day) || Number.isNaN(time) || isoDay(time) !== day) {
    throw new Error(`"${day}" is not a day.`);
  }
  return { ...of, day, name: `${of.table}_${day.replaceAll("-", "")}` };
}

/** Pure: which days lack a partition, and which partitions have outlived the retention. */
export function planPartitions(of: DailyTable, input: PlanInput): PartitionPlan {
  const { today, existing, retentionDays, strays = [], inUse = strays.includes(today) } = input;
  const names = new Set(existing.map(({ name }) => name));
  const ahead = Array.from({ length: DAYS_AHEAD + 1 }, (_, days) => addDays(today, days));
  const days = [...new Set([...strays, ...ahead])].filter((day) => !(inUse && day === today));
  const wanted = days.toSorted().map((day) => partition(of, day));
  const oldest = addDays(today, -retentionDays);
  return {
    attach: wanted.filter(({ name }) => !names.has(name)),
    retire: existing.flatMap(({ name, attached }) => {
      const known = fromName(of, name);
      return known !== undefined && known.day < oldest ? [{ ...known, attached }] : [];
    }),
  };
}

export function addDays(day: string, days: number): string {
  return isoDay(Date.parse(`${day}T00:00:00Z`) + days * DAY_MS);
}

function fromName(of: DailyTable, name: string): Partition | undefined {
  const [, year, month, date] = /_(\d{4})(\d{2})(\d{2})$/.exec(name) ?? [];
  try {
    const known = partition(of, `${year}-${month}-${date}`);
    return known.name === name ? known : undefined;
  } catch {
    return undefined; // somebody's own table that only looks like one of ours
  }
}

function isoDay(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}
