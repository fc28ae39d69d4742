import { AsyncLocalStorage } from "node:async_hooks";
import { SagaboxError } from "../errors/index.ts";
import { isValidId, type RandomBytes } from "./message-id.ts";

/** The message being handled. Messages published meanwhile name it as their cause. */
export interface MessageContext {
  readonly messageId: string;
  readonly correlationId: string;
  readonly traceparent: string;
  readonly sagaId?: string;
}

const storage = new AsyncLocalStorage<MessageContext>();

export function currentMessageContext(): MessageContext | undefined {
  return storage.getStore();
}

export function runInMessageContext<T>(context: MessageContext, work: () => T): T {
  return storage.run(context, work);
}

/** Values that the caller sets instead of inheriting them from the message being handled. */
export interface ContextOverrides {
  readonly correlationId?: string;
  readonly causationId?: string;
  readonly traceparent?: string;
}

interface Sources {
  /** Id of the message to be published. */
  readonly messageId: string;
  /** Called for every message, so it should be pooled. */
  readonly randomBytes: RandomBytes;
  /** Traceparent of the span started for this message, if tracing is enabled. */
  readonly traceparent?: string | undefined;
}

export interface DerivedContext {
  readonly correlationId: string;
  readonly causationId: string | null;
  readonly traceparent: string;
}

/**
 * Pure: takes each value from the caller, else from the message being handled, else starts a new flow and
 * trace. Throws HEADER_INVALID if a value of the caller is malformed.
 */
export function deriveContext(
  current: MessageContext | undefined,
  overrides: ContextOverrides,
  { messageId, randomBytes, traceparent }: Sources,
): DerivedContext {
  checkOverrides(overrides);
  return {
    correlationId: overrides.correlationId ?? current?.correlationId ?? messageId,
    causationId: overrides.causationId ?? current?.messageId ?? null,
    traceparent: traceparent ?? chooseTraceparent(overrides.traceparent, current?.traceparent, randomBytes),
  };
}

function chooseTraceparent(
  own: string | undefined,
  inherited: string | undefined,
  randomBytes: RandomBytes,
): string {
  const parent = parseTraceparent(own) ?? parseTraceparent(inherited);
  return formatTraceparent(parent === undefined ? newTrace(randomBytes) : newChildSpan(parent, randomBytes));
}

function checkOverrides({ correlationId, causationId, traceparent }: ContextOverrides): void {
  checkOverride("correlationId", correlationId);
  checkOverride("causationId", causationId);
  if (traceparent !== undefined && parseTraceparent(traceparent) === undefined) {
    throw new SagaboxError(
      "HEADER_INVALID",
      "traceparent must have the form 00-<trace id>-<span id>-<flags>.",
    );
  }
}

function checkOverride(name: string, id: string | undefined): void {
  if (id === undefined || isValidId(id)) return;
  throw new SagaboxError(
    "HEADER_INVALID",
    `${name} must be a string of 1 to 255 characters without control characters.`,
  );
}

/** One span of a trace, as defined by W3C Trace Context. */
export interface TraceContext {
  /** 32 hexadecimal digits. */
  readonly traceId: string;
  /** 16 hexadecimal digits. */
  readonly spanId: string;
  /** Two hexadecimal digits; the last bit is set if the trace is recorded. */
  readonly flags: string;
}

const pattern = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/;

/**
 * Returns undefined for an invalid traceparent; the standard then requires a new trace instead of an error.
 */
export function parseTraceparent(text: unknown): TraceContext | undefined {
  const match = typeof text === "string" && text.length <= 512 ? pattern.exec(text) : null;
  if (match === null) return undefined;
  const [, version = "", traceId = "", spanId = "", flags = "", rest] = match;
  // Later versions may append fields, version 00 may not, and ff is not a version.
  if (version === "ff" || (version === "00" && rest !== undefined)) return undefined;
  if (/^0+$/.test(traceId) || /^0+$/.test(spanId)) return undefined;
  return { traceId, spanId, flags };
}

export function formatTraceparent({ traceId, spanId, flags }: TraceContext): string {
  return `00-${traceId}-${spanId}-${flags}`;
}

/** Starts a new trace that is recorded. */
export function newTrace(randomBytes: RandomBytes): TraceContext {
  return { traceId: randomHex(16, randomBytes), spanId: randomHex(8, randomBytes), flags: "01" };
}

/** Creates a child span in the trace of its parent. */
export function newChildSpan(parent: TraceContext, randomBytes: RandomBytes): TraceContext {
  return { traceId: parent.traceId, spanId: randomHex(8, randomBytes), flags: parent.flags };
}

// All zeros means "absent" in the standard, so that value is avoided.
function randomHex(bytes: number, randomBytes: RandomBytes): string {
  const text = Buffer.from(randomBytes(bytes)).toString("hex");
  return /^0+$/.test(text) ? text.slice(1) + "1" : text;
}

const stateMember =
  /^[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;

/** Parses the members of a tracestate. Returns undefined if it is invalid and must be dropped. */
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
