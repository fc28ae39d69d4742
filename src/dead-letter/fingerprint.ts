import { createHash } from "node:crypto";
import type { DeadLetterReason } from "./describe-failure.ts";

/** The properties of a failure that identify its cause. */
export interface Failure {
  /** Consumer that failed; null for a message that the relay could not send. */
  readonly consumer: string | null;
  readonly type: string;
  readonly reason: DeadLetterReason;
  readonly errorType: string;
  readonly errorMessage: string;
}

const MAX_TEXT_LENGTH = 300;
const DIGITS = 12;

// The variable parts of error texts, most specific pattern first. Texts may come from other parties, so each pattern
// starts only at the start of a run and has linear cost.
const VARIABLE: readonly (readonly [RegExp, string])[] = [
  [/"[^"]*"|`[^`]*`|«[^«»]*»|“[^“”]*”/g, "…"],
  // A single quote may be an apostrophe, so it only counts at the start and end of a quotation.
  [/(?<=^|[\s(=:,[{])'[^']*'(?=$|[\s).,:;\]}])/g, "…"],
  [/(?<![^\s@<>()])[^\s@<>()]+@[^\s@<>()]+\.[a-z]+/gi, "…"],
  // UUIDs, numbers, times, addresses and names that contain a digit.
  [/(?<![\p{L}\p{N}_+:/-])[\p{L}\p{N}_+:/-]*\p{N}(?:[\p{L}\p{N}_+:/.-]*[\p{L}\p{N}_])?/gu, "#"],
  [/\b(?:[a-f]{8,}|[A-F]{8,})\b/g, "#"],
  [/#(?:[\s,;]+#)+/g, "#"],
];

/** Returns the prefix of an error text that the fingerprint depends on (1,200 characters). */
export function significantPart(text: string): string {
  return text.slice(0, MAX_TEXT_LENGTH * 4);
}

/** Replaces the variable parts of an error text (ids, numbers, quoted values), so that equal causes give equal texts. */
export function normalizeError(text: string): string {
  const plain = significantPart(text).replace(/\s+/g, " ").trim();
  const same = VARIABLE.reduce((left, [pattern, mark]) => left.replace(pattern, mark), plain);
  return same.slice(0, MAX_TEXT_LENGTH);
}

/**
 * Computes the id of a failure's cause: 12 hexadecimal digits, equal for all messages that fail with this cause. The id
 * is stored with the dead letter, so a change of this function splits existing groups.
 */
export function computeFingerprint({ consumer, type, reason, errorType, errorMessage }: Failure): string {
  const parts = [consumer, type, reason, errorType, normalizeError(errorMessage)];
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, DIGITS);
}

/** Returns a readable label of a failure's cause. */
export function failureLabel({ consumer, type, errorType, errorMessage }: Failure): string {
  return `${consumer ?? "outbox"} · ${type} · ${errorType}: ${normalizeError(errorMessage)}`;
}

/**
 * Returns true when a failed attempt has the cause of the dead letter. The dead letter's text includes the chain of
 * error causes; the attempt's text does not.
 */
export function isSameFailure(deadLetter: Pick<Failure, "errorMessage">, attempt: string): boolean {
  const [known, now] = [normalizeError(deadLetter.errorMessage), normalizeError(attempt)];
  return now !== "" && (known === now || known.startsWith(`${now} ←`));
}
