import { AsyncLocalStorage } from "node:async_hooks";
import { SagaboxError } from "../errors/index.ts";
import { isValidId } from "./message-id.ts";
import type { RandomBytes } from "./random-pool.ts";
import { newChildSpan, formatTraceparent, newTrace, parseTraceparent } from "./trace-context.ts";

/** The message being handled. What is published meanwhile was caused by it. */
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

/** What the caller says about a message's origin; the rest is inherited. */
export interface ContextOverrides {
  readonly correlationId?: string;
  readonly causationId?: string;
  readonly traceparent?: string;
}

interface Sources {
  /** Id of the message that is about to be published. */
  readonly messageId: string;
  /** Called for every message, so best a pooled one. */
  readonly randomBytes: RandomBytes;
  /** Of the span that was begun for it, where somebody traces. */
  readonly traceparent?: string | undefined;
}

export interface DerivedContext {
  readonly correlationId: string;
  readonly causationId: string | null;
  readonly traceparent: string;
}

/** Pure: the caller's word first, then the message being handled, then a new beginning. */
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
  said: string | undefined,
  caused: string | undefined,
  randomBytes: RandomBytes,
): string {
  const parent = parseTraceparent(said) ?? parseTraceparent(caused);
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
    `${name} must be a text of 1 to 255 characters without control characters.`,
  );
}
