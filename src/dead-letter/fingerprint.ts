import { createHash } from "node:crypto";
import type { DeadLetterReason } from "./describe-failure.ts";

/** What a failure is told apart by. */
export interface Failure {
  /** Null for a message that could not be sent. */
  readonly consumer: string | null;
  readonly type: string;
  readonly reason: DeadLetterReason;
  readonly errorType: string;
  readonly errorMessage: string;
}

const MAX_TEXT_LENGTH = 300;
const DIGITS = 12;

// From the most telling to the least: what one of them took is not looked at again. Texts may come from outside, so each
// pattern begins only where a run begins, and looks at no character of it more than a few times.
const VARIABLE: readonly (readonly [RegExp, string])[] = [
  [/"[^"]*"|`[^`]*`|«[^«»]*»|“[^“”]*”/g, "…"],
  // A single quote is an apostrophe as well, so it must stand where a quotation begins and where one ends.
  [/(?<=^|[\s(=:,[{])'[^']*'(?=$|[\s).,:;\]}])/g, "…"],
  [/(?<![^\s@<>()])[^\s@<>()]+@[^\s@<>()]+\.[a-z]+/gi, "…"],
  // Uuids, numbers, times, addresses and names with a number in them.
  [/(?<![\p{L}\p{N}_+:/-])[\p{L}\p{N}_+:/-]*\p{N}(?:[\p{L}\p{N}_+:/.-]*[\p{L}\p{N}_])?/gu, "#"],
  [/\b(?:[a-f]{8,}|[A-F]{8,})\b/g, "#"],
  [/#(?:[\s,;]+#)+/g, "#"],
];

/** As much of an error's text as is looked at. */
export function significantPart(text: string): string {
  return text.slice(0, MAX_TEXT_LENGTH * 4);
}

/** An error's text without what differs from one message to the next, so that the same cause has the same text. */
export function normalizeError(text: string): string {
  const plain = significantPart(text).replace(/\s+/g, " ").trim();
  const same = VARIABLE.reduce((left, [pattern, mark]) => left.replace(pattern, mark), plain);
  return same.slice(0, MAX_TEXT_LENGTH);
}

/**
 * A short id of a cause: the same for every message that fails at the same place in the same way, whichever message it
 * is. It is kept on the letter, so a change here makes new groups of old causes.
 */
export function computeFingerprint({ consumer, type, reason, errorType, errorMessage }: Failure): string {
  const parts = [consumer, type, reason, errorType, normalizeError(errorMessage)];
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, DIGITS);
}

/** The same for people. */
export function failureLabel({ consumer, type, errorType, errorMessage }: Failure): string {
  return `${consumer ?? "outbox"} · ${type} · ${errorType}: ${normalizeError(errorMessage)}`;
}

/**
 * Whether the text of a failed attempt tells of the failure that killed the letter. The letter's text has the causes
 * behind it, the attempt's has not.
 */
export function isSameFailure(letter: Pick<Failure, "errorMessage">, attempt: string): boolean {
  const [known, now] = [normalizeError(letter.errorMessage), normalizeError(attempt)];
  return now !== "" && (known === now || known.startsWith(`${now} ←`));
}
