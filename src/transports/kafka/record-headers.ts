import { isUtf8 } from "node:buffer";
import { markUnreadable, type DeadLetterNote } from "../../transport/index.ts";
import type { IncomingRecord } from "./driver.ts";

/** Written on a copy that waits to be tried again. */
export const attemptHeader = "sagabox-attempt";
export const dueHeader = "sagabox-due";

type RawHeaders = IncomingRecord["headers"];

/** As texts; of a name that comes twice the last one counts. */
export function toTextHeaders(headers: RawHeaders): Record<string, string> {
  const texts = headers.map(([name, value]) => [name.toString("utf8"), decodeHeader(name, value)] as const);
  return Object.fromEntries(texts.filter(([name]) => name !== attemptHeader && name !== dueHeader));
}

// An id with a character replaced would be another event's, so an attribute of a CloudEvent is read strictly.
function decodeHeader(name: Buffer, value: Buffer): string {
  const text = value.toString("utf8");
  const isAttribute = name[0] === 0x63 && name[1] === 0x65 && name[2] === 0x5f; // "ce_"
  return isAttribute && !isUtf8(value) ? markUnreadable(text) : text;
}

/** 1, or what a copy says. */
export function readAttempt(headers: RawHeaders): number {
  const said = Number(findHeader(headers, attemptHeader));
  return Number.isInteger(said) && said > 0 ? said : 1;
}

/** When a copy may be handed out, in milliseconds since the epoch; 0 for at once. */
export function readDueMs(headers: RawHeaders): number {
  const said = Number(findHeader(headers, dueHeader));
  return Number.isFinite(said) && said > 0 ? said : 0;
}

export function retryHeaders(headers: RawHeaders, attempt: number, dueMs: number): Map<Buffer, Buffer> {
  return withHeaders(headers, { [attemptHeader]: String(attempt), [dueHeader]: String(Math.ceil(dueMs)) });
}

export function deadLetterHeaders(headers: RawHeaders, note: DeadLetterNote): Map<Buffer, Buffer> {
  return withHeaders(headers, { ...note });
}

// The bytes of foreign headers stay as they are; only names of ours are replaced.
function withHeaders(headers: RawHeaders, added: Readonly<Record<string, string>>): Map<Buffer, Buffer> {
  const replaced = new Set([...Object.keys(added), attemptHeader, dueHeader]);
  const kept = headers.filter(([name]) => !replaced.has(name.toString("utf8")));
  const own = Object.entries(added).map(([name, value]) => [Buffer.from(name), Buffer.from(value)] as const);
  return new Map([...kept, ...own]);
}

function findHeader(headers: RawHeaders, wanted: string): string | undefined {
  return headers.findLast(([name]) => name.toString("utf8") === wanted)?.[1].toString("utf8");
}
