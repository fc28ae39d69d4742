import { AsyncLocalStorage } from "node:async_hooks";
import { SagaboxError } from "../errors/index.ts";
import { isValidId, type RandomBytes } from "./message-id.ts";
import { newChildSpan, formatTraceparent, newTrace, parseTraceparent } from "./trace-context.ts";

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
