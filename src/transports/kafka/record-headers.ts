import { isUtf8 } from "node:buffer";
import { markUnreadable, type DeadLetterNote } from "../../transport/index.ts";
import type { IncomingRecord } from "./driver.ts";

/** Headers of a copy in a retry topic: the attempt and the due time in milliseconds since the epoch. */
export const attemptHeader = "sagabox-attempt";
export const dueHeader = "sagabox-due";

type RawHeaders = IncomingRecord["headers"];

/** Decodes headers to strings, without the retry headers. If a name occurs twice, the last value wins. */
export function toTextHeaders(headers: RawHeaders): Record<string, string> {
  const texts = headers.map(([name, value]) => [name.toString("utf8"), decodeHeader(name, value)] as const);
  return Object.fromEntries(texts.filter(([name]) => name !== attemptHeader && name !== dueHeader));
}

// Decoding replaces invalid bytes, and an id changed this way could equal another event's id. So CloudEvents attributes
// that are not valid UTF-8 are marked.
function decodeHeader(name: Buffer, value: Buffer): string {
  const text = value.toString("utf8");
  const isAttribute = name[0] === 0x63 && name[1] === 0x65 && name[2] === 0x5f; // "ce_"
  return isAttribute && !isUtf8(value) ? markUnreadable(text) : text;
}

/** Reads the attempt of a copy; 1 if the header is missing or invalid. */
export function readAttempt(headers: RawHeaders): number {
  const attempt = Number(findHeader(headers, attemptHeader));
  return Number.isInteger(attempt) && attempt > 0 ? attempt : 1;
}

/** Reads when a copy may be delivered, in milliseconds since the epoch; 0 for at once. */
export function readDueMs(headers: RawHeaders): number {
  const dueMs = Number(findHeader(headers, dueHeader));
  return Number.isFinite(dueMs) && dueMs > 0 ? dueMs : 0;
}

export function retryHeaders(headers: RawHeaders, attempt: number, dueMs: number): Map<Buffer, Buffer> {
  return withHeaders(headers, { [attemptHeader]: String(attempt), [dueHeader]: String(Math.ceil(dueMs)) });
}

export function deadLetterHeaders(headers: RawHeaders, note: DeadLetterNote): Map<Buffer, Buffer> {
  return withHeaders(headers, { ...note });
}

// Only sagabox's own headers are replaced. All others keep their bytes.
function withHeaders(headers: RawHeaders, added: Readonly<Record<string, string>>): Map<Buffer, Buffer> {
  const replaced = new Set([...Object.keys(added), attemptHeader, dueHeader]);
  const kept = headers.filter(([name]) => !replaced.has(name.toString("utf8")));
  const own = Object.entries(added).map(([name, value]) => [Buffer.from(name), Buffer.from(value)] as const);
  return new Map([...kept, ...own]);
}

function findHeader(headers: RawHeaders, wanted: string): string | undefined {
  return headers.findLast(([name]) => name.toString("utf8") === wanted)?.[1].toString("utf8");
}
