import type { RandomBytes } from "./random-pool.ts";

/** One span of a trace, as W3C Trace Context writes it. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits. */
  readonly spanId: string;
  /** Two hexadecimal digits; the last bit says that the trace is recorded. */
  readonly flags: string;
}

const pattern = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/** Undefined for what is no traceparent; the standard then wants a new trace rather than an error. */
export function parseTraceparent(text: unknown): TraceContext | undefined {
  const match = typeof text === "string" && text.length <= 512 ? pattern.exec(text) : null;
  if (match === null) return undefined;
  const [, version = "", traceId = "", spanId = "", flags = "", rest] = match;
  // Later versions may append fields; the first one may not, and ff is never a version.
  if (version === "ff" || (version === "00" && rest !== undefined)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, flags };
}

export function formatTraceparent({ traceId, spanId, flags }: TraceContext): string {
  return `00-${traceId}-${spanId}-${flags}`;
}

/** A recorded trace that begins here. */
export function newTrace(randomBytes: RandomBytes): TraceContext {
  return { traceId: randomHex(16, randomBytes), spanId: randomHex(8, randomBytes), flags: "01" };
}

/** A new span in the same trace. */
export function newChildSpan(parent: TraceContext, randomBytes: RandomBytes): TraceContext {
  return { traceId: parent.traceId, spanId: randomHex(8, randomBytes), flags: parent.flags };
}

// All zeros means "none" in the standard, however unlikely it is to be drawn.
function randomHex(bytes: number, randomBytes: RandomBytes): string {
  const text = Buffer.from(randomBytes(bytes)).toString("hex");
  return /^0+$/.test(text) ? text.slice(1) + "1" : text;
}

const stateMember =
  /^[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/** The members of a tracestate, or undefined when it must be dropped. */
export function parseTracestate(text: unknown): readonly string[] | undefined {
  if (typeof text !== "string" || text.length > 512) return undefined;
  const members = text.split(",").map((member) => member.trim());
  const written = members.filter((member) => member !== "");
  if (written.length === 0 || written.length > 32) return undefined;
  const names = new Set(written.map((member) => member.slice(0, member.indexOf("="))));
  if (names.size !== written.length || !written.every((member) => stateMember.test(member))) return undefined;
  return written;
}

export function formatTracestate(members: readonly string[]): string {
  return members.join(",");
}
