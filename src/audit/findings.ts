import { decodeLeaves, NO_HASH, sealHash, type Leaf, type Seal } from "./chain.ts";
import type { LogName } from "./statements.ts";

/** Something that is not as it was sealed. */
export interface Finding {
  readonly kind:
    | "row_changed"
    | "row_missing"
    | "row_added"
    | "rows_missing"
    | "seal_changed"
    | "seal_missing"
    | "anchor_missing"
    | "retention_untrue";
  /** Which log, where it is about rows. */
  readonly log: LogName | null;
  /** The row, by its id. */
  readonly id: string | null;
  /** The seal that covers it, or that is meant. */
  readonly seal: string | null;
  readonly text: string;
}

const table = { saga: "saga_audit_log", action: "audit_log" } as const;

/** Where the chain stands in front of a seal. */
export interface Link {
  readonly number: string;
  readonly hash: string;
}

export const chainBegin: Link = { number: "0", hash: NO_HASH };

/** Pure: whether a seal is what it was, and follows the one before it. */
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
      `Seal ${seal.number} does not follow the hash of the one before it.`,
    );
  }
  if (sealHash(seal) !== seal.hash) {
    addFinding(
      "seal_changed",
      seal.number,
      `Seal ${seal.number} was changed: its hash is not that of what it says.`,
    );
  }
  return findings;
}

/** Pure: the rows that are there against those that were sealed. */
export function judgeRows(seal: Seal, found: readonly Leaf[]): Finding[] {
  const { log, number, month } = seal;
  const finding = (kind: Finding["kind"], id: string, text: string): Finding => ({
    kind,
    log,
    id,
    seal: number,
    text: `Row ${id} of ${table[log]} ${text} (seal ${number}, month ${month.slice(0, 7)}).`,
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

/** Rows in a sealed range of a log and month for which there was nothing to seal. */
export function reportAddedRows(log: LogName, month: string, seal: string, rows: readonly Leaf[]): Finding[] {
  return rows.map(({ id }) => ({
    kind: "row_added",
    log,
    id,
    seal,
    text: `Row ${id} of ${table[log]} was added after its range was sealed (seal ${seal}, month ${month.slice(0, 7)}).`,
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
      `All ${sealed.length} rows that seal ${number} covers are missing from ${table[log]}, the first is ${first}, the ` +
      `last ${last}. If the month ${month.slice(0, 7)} was dropped, nothing in the log says so.`,
  };
}
