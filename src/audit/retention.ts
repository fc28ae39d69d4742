import { type Queryable, toArrayLiteral } from "../storage/index.ts";
import { chainBegin, type Finding, type Link } from "./findings.ts";
import { type AuditStatements, type LogName, logTables } from "./statements.ts";

/** Tables with monthly partitions. Seals come last, because they are dropped after the rows they cover. */
export const monthlyTables = ["saga_audit_log", "audit_log", "audit_seal"] as const;
export type MonthlyTable = (typeof monthlyTables)[number];

/** One monthly partition. Its fields become part of SQL text, so only `monthPartition` may create it. */
export interface MonthPartition {
  readonly table: MonthlyTable;
  readonly name: string;
  /** First day of the month and of the next month, in UTC. */
  readonly month: string;
  readonly next: string;
}

export interface MonthPlan {
  readonly attach: readonly MonthPartition[];
  readonly retire: readonly MonthPartition[];
}

const MONTHS_AHEAD = 3;

/** Names the partition of a table for a month. Throws if `month` is not the first day of a month. */
export function monthPartition(table: MonthlyTable, month: string): MonthPartition {
  if (!/^\d{4}-(0[1-9]|1[0-2])-01$/.test(month))
    throw new Error(`"${month}" is not the first day of a month.`);
  const name = `${table}_${month.slice(0, 4)}${month.slice(5, 7)}`;
  return { table, name, month, next: addMonths(month, 1) };
}

/** Returns the partitions to create (this month and three ahead) and to drop (ended before the retention). Pure. */
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

/** Actor and target kind of the log entries about dropped months. */
export const RETENTION_ACTOR = "sagabox";
export const RETENTION_TARGET = "partition";

/** A stored log entry about a dropped month. */
export interface RetentionLine {
  readonly id: string;
  readonly at: string;
  readonly actor: string;
  readonly target_kind: string;
  readonly target_id: string | null;
  readonly after: string | null;
}

/** Content of a log entry about a dropped month. It explains to the verifier why rows or seals are missing. */
export interface RetentionRecord {
  /** Months whose rows were dropped and whose seals are still stored. */
  readonly dropped: readonly { readonly log: LogName; readonly month: string }[];
  /** The last dropped seal. The stored chain continues from here. */
  readonly anchor: Link;
}

export interface ChainFacts {
  /** Partitions that entries report as dropped but that still exist. */
  readonly existing: ReadonlySet<string>;
  /** The seal before the first stored seal; undefined while no seal is stored. */
  readonly start: Link | undefined;
}

/** The shortest retention that the options allow. */
const MIN_RETENTION_MS = 86_400_000;
const partitionName = new RegExp(`^(${monthlyTables.join("|")})_(\\d{4})(0[1-9]|1[0-2])$`);
const monthName = /^\d{4}-(0[1-9]|1[0-2])-01$/;

/**
 * Checks an entry about a dropped month. Other roles can also write to the log, so the entry counts only if it is
 * possible: written by the upkeep, about a past month whose table no longer exists, with an anchor that fits the stored
 * chain. Pure.
 */
export function judgeRetentionLine(
  line: RetentionLine,
  { existing, start }: ChainFacts,
): { readonly record: RetentionRecord } | { readonly finding: Finding } {
  const record = parseRecord(line.after);
  if (record === undefined) return retentionFinding(line, "does not have the format that the upkeep writes");
  if (line.actor !== RETENTION_ACTOR || line.target_kind !== RETENTION_TARGET)
    return retentionFinding(line, "was not written by the upkeep");
  const [, table, year, number] = partitionName.exec(line.target_id ?? "") ?? [];
  if (table === undefined || line.target_id === null)
    return retentionFinding(line, "names no monthly partition");
  if (existing.has(line.target_id))
    return retentionFinding(line, `says that ${line.target_id} was dropped, but it still exists`);
  const early = [`${year}-${number}-01`, ...record.dropped.map(({ month }) => month)].find(
    (month) => monthEndMs(month) + MIN_RETENTION_MS > Date.parse(line.at),
  );
  if (early !== undefined)
    return retentionFinding(line, `says that ${early.slice(0, 7)} was dropped before it was over`);
  if (start !== undefined && !canPrecede(record.anchor, start))
    return retentionFinding(line, "does not match the start of the stored chain");
  return { record };
}

// Later drops move the start of the chain forward. The hash can be compared only at the current start.
function canPrecede(anchor: Link, start: Link): boolean {
  if (anchor.number === start.number) return anchor.hash === start.hash;
  return BigInt(anchor.number) < BigInt(start.number);
}

function monthEndMs(month: string): number {
  return Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5, 7)), 1);
}

function retentionFinding({ id }: RetentionLine, why: string): { readonly finding: Finding } {
  const text = `Row ${id} of audit_log (audit.retention) ${why}. The entry is ignored.`;
  return { finding: { kind: "retention_mismatch", log: "action", id, seal: null, text } };
}

function parseRecord(text: string | null): RetentionRecord | undefined {
  const value: unknown = text === null ? null : JSON.parse(text);
  if (!isObject(value) || !Array.isArray(value["dropped"])) return undefined;
  const anchor = parseLink(value["anchor"]);
  const dropped = value["dropped"].map(parseDropped);
  if (anchor === undefined || !dropped.every((one) => one !== undefined)) return undefined;
  return { dropped, anchor };
}

function parseLink(value: unknown): Link | undefined {
  if (!isObject(value)) return undefined;
  const { number, hash } = value;
  if (typeof number !== "string" || !/^\d{1,19}$/.test(number)) return undefined;
  return typeof hash === "string" && /^[0-9a-f]{64}$/.test(hash) ? { number, hash } : undefined;
}

function parseDropped(value: unknown): RetentionRecord["dropped"][number] | undefined {
  if (!isObject(value)) return undefined;
  const { log, month } = value;
  if (log !== "saga" && log !== "action") return undefined;
  return typeof month === "string" && monthName.test(month) ? { log, month } : undefined;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The dropped months, according to all credible log entries about them. */
export interface Retention extends RetentionRecord {
  /** Entries that are not credible, because only the upkeep may write entries about dropped months. */
  readonly findings: readonly Finding[];
}

/** Upper bound for entries, far above the number of months kept. */
const MAX_LINES = 1_000;

/**
 * Reads all entries about dropped months and combines the credible ones. The others become findings and are ignored. No
 * entry can revoke another one, because a dropped month never comes back.
 */
export async function readRetention(
  database: Queryable,
  sql: AuditStatements,
  schema: string,
): Promise<Retention> {
  const { rows } = await database.run<RetentionLine>(sql.retentionLines, [MAX_LINES]);
  if (rows.length === 0) return { dropped: [], anchor: chainBegin, findings: [] };
  const named = rows.map(({ target_id: name }) => name ?? "");
  const existing = await listTablesLeft(database, sql, schema, named);
  const start = await findChainStart(database, sql);
  const judged = rows.map((line) => judgeRetentionLine(line, { existing, start }));
  const records = judged.flatMap((one) => ("record" in one ? [one.record] : []));
  const months = new Map(
    records.flatMap(({ dropped }) => dropped.map((one) => [`${one.log} ${one.month}`, one])),
  );
  return {
    dropped: [...months.values()],
    anchor: records.map(({ anchor }) => anchor).reduce(laterLink, chainBegin),
    findings: judged.flatMap((one) => ("finding" in one ? [one.finding] : [])),
  };
}

// A credible anchor is never after the start of the stored chain, so the latest anchor is the one at the start.
function laterLink(one: Link, other: Link): Link {
  return BigInt(other.number) > BigInt(one.number) ? other : one;
}

/**
 * Returns true if a month without rows was dropped by the upkeep, which drops the whole partition. A partition that still
 * exists but is empty was emptied in another way, even if an entry says otherwise.
 */
export async function wasDropped(
  database: Queryable,
  sql: AuditStatements,
  schema: string,
  { log, month }: { readonly log: LogName; readonly month: string },
): Promise<boolean> {
  const { dropped } = await readRetention(database, sql, schema);
  if (!dropped.some((one) => one.log === log && one.month === month)) return false;
  const table = `${logTables[log]}_${month.slice(0, 4)}${month.slice(5, 7)}`;
  return (await listTablesLeft(database, sql, schema, [table])).size === 0;
}

/** Returns the link before the first stored seal, or undefined if no seal is stored. */
async function findChainStart(database: Queryable, sql: AuditStatements): Promise<Link | undefined> {
  const [first] = (await database.run<{ number: string; previous_hash: string }>(sql.firstSeal)).rows;
  if (first === undefined) return undefined;
  return { number: (BigInt(first.number) - 1n).toString(), hash: first.previous_hash };
}

async function listTablesLeft(
  database: Queryable,
  sql: AuditStatements,
  schema: string,
  names: readonly string[],
): Promise<ReadonlySet<string>> {
  const { rows } = await database.run<{ name: string }>(sql.tablesLeft, [schema, toArrayLiteral([...names])]);
  return new Set(rows.map(({ name }) => name));
}
