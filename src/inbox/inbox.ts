import { buryMessage } from "../dead-letter/index.ts";
import { SagaboxError } from "../errors/index.ts";
import {
  currentMessageContext,
  encodeJson,
  isValidId,
  type Json,
  type Message,
  runInMessageContext,
} from "../message/index.ts";
import { option, readOptions, text, type OptionsFrom } from "../options/index.ts";
import { randomToken, systemClock } from "../runtime/index.ts";
import { explainPostgresError } from "../storage/index.ts";
import { spanFailure } from "../telemetry/index.ts";
import type { InboxEngine } from "./engine.ts";
import { handlerContext } from "./handler-context.ts";
import type { HandlerContext } from "./handler.ts";
import { idFlaw } from "./read-message.ts";
import { asError, receiveOnce } from "./receive-once.ts";
import { type ConsumerStats, inboxStats } from "./stats.ts";

/** A message from anywhere: what sagabox needs to know in order to handle it once. */
export interface ForeignMessage<D = unknown> {
  readonly id?: string | undefined;
  /** Names the effect; the same message may have one effect per consumer. */
  readonly consumer: string;
  readonly topic: string;
  readonly type: string;
  readonly data: D;
  readonly headers?: Readonly<Record<string, string>>;
  readonly attempt?: number;
  readonly correlationId?: string;
  readonly traceparent?: string;
}

export type Processed<R> =
  | { readonly kind: "processed"; readonly result: R }
  | { readonly kind: "duplicate"; readonly result?: Json }
  /** It had no usable id, so it could not be handled once: it is a dead letter now, and may be acknowledged. */
  | { readonly kind: "dead_letter"; readonly code: "MESSAGE_ID_MISSING" | "MESSAGE_ID_INVALID" };

export const inboxOptions = {
  /** Returns the id of a message that has no `id`. */
  idOf: option.callback<(message: ForeignMessage) => string | undefined>(),
  /** How long a handler may take. Default "30s". */
  deadline: option.duration({ default: "30s", min: 1 }),
};

/** Options of `bus.inbox`. */
export interface InboxOptions extends OptionsFrom<typeof inboxOptions> {}

const PRINTABLE = /^(?=.*\S)[^\p{Cc}\p{Cs}]+$/u;

/** Exactly-once effect for anyone's own consumer loop: acknowledge to your broker after `process` has resolved. */
export class Inbox {
  readonly #engine: InboxEngine;
  readonly #idOf: InboxOptions["idOf"];
  readonly #deadlineMs: number;

  constructor(engine: InboxEngine, options: InboxOptions = {}) {
    const { idOf, deadlineMs } = readOptions("inbox", inboxOptions, options);
    this.#engine = engine;
    this.#idOf = idOf;
    this.#deadlineMs = deadlineMs;
  }

  /** Throws what the handler threw, with everything rolled back: do not acknowledge then. */
  async process<D, R extends Json | void>(
    message: ForeignMessage<D>,
    handler: (
      message: ForeignMessage<D> & { readonly id: string },
      context: HandlerContext,
    ) => R | Promise<R>,
  ): Promise<Processed<R>> {
    assertUsable(message);
    assertFunction("The handler of inbox.process", handler);
    const found = message.id ?? this.#idOf?.(message);
    if (!isValidId(found)) {
      return buryForeign(this.#engine, message, found).catch((error: unknown) => this.#explain(error));
    }
    const id = found;
    const { consumer, topic, type } = message;
    const deadlineMs = this.#deadlineMs;
    const receipt = { consumer, id, topic, type, payload: null, expiresAt: null, deadlineMs };
    const { spans } = this.#engine;
    const nr = message.attempt ?? 1;
    const traceparent = message.traceparent ?? spans.currentSpan().traceparent;
    const span = spans.process(
      { id, type, topic, ...(traceparent && { traceparent }) },
      { consumer, attempt: nr },
    );
    const receiving = span.run(() =>
      receiveOnce(this.#engine, receipt, async (attempt) => {
        const context = handlerContext(consumer, id, nr, attempt);
        return runInMessageContext(toMessageContext(message, id), () => handler({ ...message, id }, context));
      }),
    );
    const outcome = await receiving
      .catch((thrown: unknown) => {
        span.fail(spanFailure(asError(thrown)));
        return this.#explain(asError(thrown));
      })
      .finally(() => span.end());
    return this.#toProcessed(message, id, outcome);
  }

  stats(consumer?: string): Promise<readonly ConsumerStats[]> {
    return inboxStats(this.#engine, consumer).catch((error: unknown) => this.#explain(error));
  }

  #explain(error: unknown): never {
    throw explainPostgresError(error, this.#engine.sql.schema, "consumer");
  }

  #toProcessed<R>(
    { consumer, type, topic }: ForeignMessage,
    id: string,
    outcome: Awaited<ReturnType<typeof receiveOnce<R>>>,
  ): Processed<Awaited<R>> {
    if (outcome.kind === "processed") {
      const { durationMs } = outcome;
      this.#engine.observer.emit("consumer.processed", { consumer, type, topic, id, durationMs });
      return { kind: "processed", result: outcome.result };
    }
    this.#engine.observer.emit("consumer.duplicate", { consumer, type, topic, id });
    const first = outcome.kind === "duplicate" ? outcome.result : undefined;
    return { kind: "duplicate", ...(first === undefined ? {} : { result: first }) };
  }
}

function toMessageContext({ correlationId, traceparent }: ForeignMessage, messageId: string) {
  const current = currentMessageContext();
  return {
    messageId,
    correlationId: correlationId ?? current?.correlationId ?? messageId,
    traceparent: traceparent ?? current?.traceparent ?? "",
  };
}

// Dedupe hangs on the consumer's name, so a message without one could be taken for another's duplicate.
function assertUsable(message: ForeignMessage): void {
  if (typeof message !== "object" || message === null) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "inbox.process takes a message: { id, consumer, topic, type, data }.",
    );
  }
  for (const name of ["consumer", "topic", "type"] as const) {
    text(`inbox.process: \`${name}\``, message[name], { pattern: PRINTABLE });
  }
}

function assertFunction(name: string, value: unknown): void {
  if (typeof value !== "function") throw new SagaboxError("OPTIONS_INVALID", `${name} must be a function.`);
}

/** Keeps a message without a usable id as a dead letter: without one nobody could tell its second copy from its first. */
async function buryForeign(
  { database, deadLetters, observer }: InboxEngine,
  foreign: ForeignMessage,
  id: unknown,
): Promise<Processed<never>> {
  const error = idFlaw(id);
  const message = toStoredMessage(foreign);
  const { consumer, type, topic } = foreign;
  const tx = await database.begin();
  try {
    await buryMessage(tx, deadLetters, {
      origin: "consumer",
      consumer,
      message,
      reason: "rejected",
      error,
      attempts: foreign.attempt ?? 1,
      maxAttempts: 1,
    });
    await tx.commit();
  } catch (failure) {
    await tx.rollback();
    throw failure;
  }
  const told = { origin: "consumer", consumer, id: message.id, type, topic, reason: "rejected" } as const;
  observer.emit("dead_letter.buried", { ...told, error: error.message });
  return { kind: "dead_letter", code: error.code };
}

function toStoredMessage(foreign: ForeignMessage): Message {
  const id = `unidentified-${randomToken()}`;
  return {
    id,
    kind: "event",
    type: foreign.type,
    schemaVersion: 1,
    topic: foreign.topic,
    key: null,
    data: asText(foreign.data),
    headers: foreign.headers ?? {},
    correlationId: foreign.correlationId ?? id,
    causationId: null,
    traceparent: foreign.traceparent ?? "",
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    source: "",
    target: null,
    priority: 5,
    writtenAt: new Date(systemClock.wallMs()).toISOString(),
    expiresAt: null,
  };
}

// What cannot be written as JSON is kept as its text: a person must be able to see what came.
function asText(data: unknown): string {
  try {
    return encodeJson(data);
  } catch {
    return JSON.stringify(String(data));
  }
}
