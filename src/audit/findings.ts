import { decodeLeaves, NO_HASH, sealHash, type Leaf, type Seal } from "./chain.ts";
import type { LogName } from "./statements.ts";

/** A difference between the log and its seals. */
export interface Finding {
  readonly kind:
    | "row_changed"
    | "row_missing"
    | "row_added"
    | "rows_missing"
    | "seal_changed"
    | "seal_missing"
    | "anchor_missing"
    | "retention_mismatch";
  /** The log of the row; null if the finding is not about rows of one log. */
  readonly log: LogName | null;
  /** Id of the row; null if the finding is not about one row. */
  readonly id: string | null;
  /** Number of the seal that covers the row or has the problem. */
  readonly seal: string | null;
  readonly text: string;
}

const TABLES = { saga: "saga_audit_log", action: "audit_log" } as const;

/** The seal that the next seal must follow. */
export interface Link {
  readonly number: string;
  readonly hash: string;
}

export const chainBegin: Link = { number: "0", hash: NO_HASH };

/** Checks that a seal has its own hash and follows the seal before it. Pure. */
export function judgeSeal(before: Link, seal: Seal): Finding[] {
  const findings: Finding[] = [];
  const addFinding = (kind: Finding["kind"], number: string, text: string): void => {
    findings.push({ kind, log: null, id: null, seal: number, text });
  };
  const expected = BigInt(before.number) + 1n;
  const missing = BigInt(seal.number) - expected;
  if (missing > 0n) {
    const names =
      missing === 1n ? `Seal ${expected} is` : `Seals ${expected} to ${BigInt(seal.number) - 1n} are`;
    addFinding("seal_missing", expected.toString(), `${names} missing.`);
  } else if (missing < 0n) {
    addFinding("seal_changed", seal.number, `There are two seals ${seal.number}.`);
  } else if (seal.previous_hash !== before.hash) {
    addFinding(
      "seal_changed",
      seal.number,
      `Seal ${seal.number} does not contain the hash of the seal before it.`,
    );
  }
  if (sealHash(seal) !== seal.hash) {
    addFinding(
      "seal_changed",
      seal.number,
      `Seal ${seal.number} was changed: its hash does not match its content.`,
    );
  }
  return findings;
}

/** Compares the stored rows with the rows that were sealed. Pure. */
export function judgeRows(seal: Seal, found: readonly Leaf[]): Finding[] {
  const { log, number, month } = seal;
  const finding = (kind: Finding["kind"], id: string, text: string): Finding => ({
    kind,
    log,
    id,
    seal: number,
    text: `Row ${id} of ${TABLES[log]} ${text} (seal ${number}, month ${month.slice(0, 7)}).`,
  });
  const sealed = decodeLeaves(seal.leaves);
  if (found.length === 0 && sealed.length > 1) return [reportAllMissing(seal, sealed)];
  const there = new Map<string, string[]>();
  for (const { id, digest } of found) there.set(id, [...(there.get(id) ?? []), digest]);
  const findings: Finding[] = [];
  for (const { id, digest } of sealed) {
    const [first, ...copies] = there.get(id) ?? [];
    there.delete(id);
    if (first === undefined)
      findings.push(finding("row_missing", id, "is missing, or was moved to another time"));
    else if (copies.length > 0) findings.push(finding("row_added", id, "is there more than once"));
    else if (first !== digest) findings.push(finding("row_changed", id, "was changed"));
  }
  for (const id of there.keys()) findings.push(finding("row_added", id, "was added after the seal"));
  return findings;
}

/** Reports rows in a sealed range, of a log and month that had no rows when the range was sealed. */
export function reportAddedRows(log: LogName, month: string, seal: string, rows: readonly Leaf[]): Finding[] {
  return rows.map(({ id }) => ({
    kind: "row_added",
    log,
    id,
    seal,
    text: `Row ${id} of ${TABLES[log]} was added after its range was sealed (seal ${seal}, month ${month.slice(0, 7)}).`,
  }));
}

function reportAllMissing({ log, number, month }: Seal, sealed: readonly Leaf[]): Finding {
  const [first, last] = [sealed[0]?.id ?? "", sealed.at(-1)?.id ?? ""];
  return {
    kind: "rows_missing",
    log,
    id: first,
    seal: number,
    text:
      `All ${sealed.length} rows that seal ${number} covers are missing from ${TABLES[log]}: ${first} to ` +
      `${last}. The log has no entry that month ${month.slice(0, 7)} was dropped.`,
  };
}
