import type { Finding, Link } from "./findings.ts";
import { monthlyTables } from "./months.ts";
import type { LogName } from "./statements.ts";

/** Who writes these lines, and about what. */
export const RETENTION_ACTOR = "sagabox";
export const RETENTION_TARGET = "partition";

/** A line that says that a month was dropped, as it is stored. */
export interface RetentionLine {
  readonly id: string;
  readonly at: string;
  readonly actor: string;
  readonly target_kind: string;
  readonly target_id: string | null;
  readonly after: string | null;
}

/** What such a line says: the log itself accounts for what is not there any more. */
export interface RetentionRecord {
  /** Months of which seals are left, but no rows. */
  readonly dropped: readonly { readonly log: LogName; readonly month: string }[];
  /** The last seal that was dropped. The chain goes on from here. */
  readonly anchor: Link;
}

export interface ChainFacts {
  /** The tables of months that are still there, of all that lines name. */
  readonly left: ReadonlySet<string>;
  /** What the first seal that is left follows. */
  readonly begins: Link | undefined;
}

/** No retention is shorter. */
const MIN_RETENTION_MS = 86_400_000;
const partitionName = new RegExp(`^(${monthlyTables.join("|")})_(\\d{4})(0[1-9]|1[0-2])$`);
const monthName = /^\d{4}-(0[1-9]|1[0-2])-01$/;

/**
 * Pure. Other roles may write lines as well, so such a line is believed only where it says what can be: written by the
 * upkeep, about a month that is over and whose table is gone, and leading to where the chain begins.
 */
export function judgeRetentionLine(
  line: RetentionLine,
  { left, begins }: ChainFacts,
): { readonly record: RetentionRecord } | { readonly finding: Finding } {
  const record = parseRecord(line.after);
  if (record === undefined) return retentionFinding(line, "says nothing that the upkeep would write");
  if (line.actor !== RETENTION_ACTOR || line.target_kind !== RETENTION_TARGET)
    return retentionFinding(line, "was not written by the upkeep");
  const [, table, year, number] = partitionName.exec(line.target_id ?? "") ?? [];
  if (table === undefined || line.target_id === null) return retentionFinding(line, "names no month of ours");
  if (left.has(line.target_id))
    return retentionFinding(line, `says that ${line.target_id} was dropped, which is there`);
  const early = [`${year}-${number}-01`, ...record.dropped.map(({ month }) => month)].find(
    (month) => monthEndMs(month) + MIN_RETENTION_MS > Date.parse(line.at),
  );
  if (early !== undefined)
    return retentionFinding(line, `says that ${early.slice(0, 7)} was dropped before it was over`);
  if (begins !== undefined && !mayLeadTo(record.anchor, begins))
    return retentionFinding(line, "lets the chain begin where it does not");
  return { record };
}

// Later drops let it begin later. Where it begins there is one hash, and before that none is left to compare.
function mayLeadTo(anchor: Link, begins: Link): boolean {
  if (anchor.number === begins.number) return anchor.hash === begins.hash;
  return BigInt(anchor.number) < BigInt(begins.number);
}

function monthEndMs(month: string): number {
  return Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5, 7)), 1);
}

function retentionFinding({ id }: RetentionLine, why: string): { readonly finding: Finding } {
  const text = `Row ${id} of audit_log (audit.retention) ${why}. It legitimises nothing.`;
  return { finding: { kind: "retention_untrue", log: "action", id, seal: null, text } };
}

function parseRecord(text: string | null): RetentionRecord | undefined {
  const told: unknown = text === null ? null : JSON.parse(text);
  if (!isObject(told) || !Array.isArray(told["dropped"])) return undefined;
  const anchor = parseLink(told["anchor"]);
  const dropped = told["dropped"].map(parseDropped);
  if (anchor === undefined || !dropped.every((one) => one !== undefined)) return undefined;
  return { dropped, anchor };
}

function parseLink(told: unknown): Link | undefined {
  if (!isObject(told)) return undefined;
  const { number, hash } = told;
  if (typeof number !== "string" || !/^\d{1,19}$/.test(number)) return undefined;
  return typeof hash === "string" && /^[0-9a-f]{64}$/.test(hash) ? { number, hash } : undefined;
}

function parseDropped(told: unknown): RetentionRecord["dropped"][number] | undefined {
  if (!isObject(told)) return undefined;
  const { log, month } = told;
  if (log !== "saga" && log !== "action") return undefined;
  return typeof month === "string" && monthName.test(month) ? { log, month } : undefined;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
