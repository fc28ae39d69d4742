import { buryMessage } from "../dead-letter/index.ts";
import { SagaboxError } from "../errors/index.ts";
import {
  currentMessageContext,
  encodeJson,
  isValidId,
  type Json,
  type JsonResult,
  type Message,
  runInMessageContext,
} from "../message/index.ts";
import { option, readOptions, text, type OptionsFrom } from "../options/index.ts";
import { randomToken, systemClock } from "../runtime/index.ts";
import { explainPostgresError } from "../storage/index.ts";
import { spanFailure } from "../telemetry/index.ts";
import type { InboxEngine } from "./engine.ts";
import { handlerContext } from "./respond.ts";
import type { HandlerContext } from "./handler.ts";
import { invalidIdError } from "./read-message.ts";
import { toHandlerError, receiveOnce } from "./receive-once.ts";

/** A message from a source other than sagabox, with what the inbox needs to handle it once. */
export interface ForeignMessage<D = unknown> {
  /** Identifies duplicates. Default: what `idOf` of the inbox returns. */
  readonly id?: string | undefined;
  /** The name of the effect. A message is handled once per consumer. */
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
  /** It had no usable id and is now a dead letter. Acknowledge it. */
  | { readonly kind: "dead_letter"; readonly code: "MESSAGE_ID_MISSING" | "MESSAGE_ID_INVALID" };

export const inboxOptions = {
  /** Derives the id of a message without `id`. If it returns undefined, the message becomes a dead letter. */
  idOf: option.callback<(message: ForeignMessage) => string | undefined>(),
  /** How long a handler may take. Default "30s". */
  deadline: option.duration({ default: "30s", min: 1 }),
};

/** Options of `bus.inbox`. */
export interface InboxOptions extends OptionsFrom<typeof inboxOptions> {}

const PRINTABLE = /^(?=.*\S)[^\p{Cc}\p{Cs}]+$/u;

/** Exactly-once effects for your own consumer loop. Acknowledge at your broker after `process` has resolved. */
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

  /**
   * Runs the handler in a transaction unless the message was handled before. Throws the handler's error after a rollback:
   * do not acknowledge the message then.
   */
  async process<D, R extends JsonResult<R>>(
    message: ForeignMessage<D>,
    handler: (
      message: ForeignMessage<D> & { readonly id: string },
      context: HandlerContext,
    ) => R | Promise<R>,
  ): Promise<Processed<R>> {
    assertUsable(message);
    assertFunction("The handler of inbox.process", handler);
    const id = message.id ?? this.#idOf?.(message);
    if (!isValidId(id)) {
      return deadLetterForeign(this.#engine, message, id).catch((error: unknown) => this.#explain(error));
    }
    const { consumer, topic, type } = message;
    const deadlineMs = this.#deadlineMs;
    const receipt = {
      consumer,
      id,
      topic,
      type,
      payload: null,
      expiresAt: null,
      deadlineMs,
      forHandler: true,
    };
    const { spans } = this.#engine;
    const attemptNumber = message.attempt ?? 1;
    const traceparent = message.traceparent ?? spans.currentSpan().traceparent;
    const span = spans.process(
      { id, type, topic, ...(traceparent && { traceparent }) },
      { consumer, attempt: attemptNumber },
    );
    const receiving = span.run(() =>
      receiveOnce(this.#engine, receipt, async (attempt) => {
        const context = handlerContext(consumer, id, attemptNumber, attempt);
        return runInMessageContext(toMessageContext(message, id), () => handler({ ...message, id }, context));
      }),
    );
    const outcome = await receiving
      .catch((thrown: unknown) => {
        span.fail(spanFailure(toHandlerError(thrown)));
        return this.#explain(toHandlerError(thrown));
      })
      .finally(() => span.end());
    return this.#toProcessed(message, id, outcome);
  }

  /** Counts the handled messages per consumer. It reads the whole table, so do not call it often. */
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
    const earlierResult = outcome.kind === "duplicate" ? outcome.result : undefined;
    return { kind: "duplicate", ...(earlierResult === undefined ? {} : { result: earlierResult }) };
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

// Duplicates are found by consumer and id, so a message without a consumer could count as a duplicate of another one.
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

/** Stores a message without a usable id as a dead letter, because its copies cannot be recognised as duplicates. */
async function deadLetterForeign(
  { database, deadLetters, observer }: InboxEngine,
  foreign: ForeignMessage,
  id: unknown,
): Promise<Processed<never>> {
  const error = invalidIdError(id);
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
  const fields = { origin: "consumer", consumer, id: message.id, type, topic, reason: "rejected" } as const;
  observer.emit("dead_letter.buried", { ...fields, error: error.message });
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

// Data that JSON cannot represent is stored as a string, so that an operator can see it.
function asText(data: unknown): string {
  try {
    return encodeJson(data);
  } catch {
    return JSON.stringify(String(data));
  }
}

export interface ConsumerStats {
  readonly consumer: string;
  readonly total: number;
  /** When the oldest message that is still stored was handled, in ISO format. */
  readonly oldest: string;
  readonly lastHour: number;
  readonly lastDay: number;
}

/** Counts the handled messages per consumer within the inbox retention. It reads the whole table. */
export async function inboxStats(
  { database, sql }: Pick<InboxEngine, "database" | "sql">,
  consumer?: string,
): Promise<readonly ConsumerStats[]> {
  const { rows } = await database.run<{
    consumer: string;
    total: number;
    oldest: string;
    last_hour: number;
    last_day: number;
  }>(sql.stats, [consumer ?? null]);
  return rows.map((row) => ({
    consumer: row.consumer,
    total: row.total,
    oldest: row.oldest,
    lastHour: row.last_hour,
    lastDay: row.last_day,
  }));
}
