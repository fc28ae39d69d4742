import { burialParams, type DeadLetterReason, describeFailure } from "../dead-letter/index.ts";
import { errorText, isSagaboxError, SagaboxError } from "../errors/index.ts";
import { type Message, readReplyTopic } from "../message/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { retryWithBackoff } from "../runtime/index.ts";
import type { CommitStatement } from "../storage/index.ts";
import type { SpanAttributes, TelemetryContext } from "../telemetry/index.ts";
import type { DeadLetterNote, Delivery } from "../transport/index.ts";
import { ackStatement, runAttempt, type Attempt, retryUntilDone } from "./attempt.ts";
import { claimCommands, type CommandReferences, findEffect } from "./earlier-commands.ts";
import type { InboxEngine } from "./engine.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";
import { toHandlerError } from "./receive-once.ts";
import { type FailureReply, respond, respondFailed } from "./respond.ts";

/**
 * done: settled for good. again: it will be redelivered, so later deliveries of its key must wait. lost: another worker
 * took it over.
 */
export type SettleResult = "done" | "again" | "lost";

const SETTLE_MS = 30_000;
const MAX_COPY_TRIES = 5;
const COPY_BACKOFF = { firstMs: 200, maxMs: 5_000 };
const NOTHING = Promise.resolve();

/** The steps that settle a delivery whose handler's transaction was rolled back. */
interface SettleSteps {
  /** Publishes the reply, if one was requested, and resolves with statements that run in the same transaction. */
  readonly conclude: (current: Attempt) => Promise<readonly CommitStatement[]>;
  readonly acknowledge?: () => Promise<SettleResult>;
}

interface SettlementParts {
  readonly engine: InboxEngine;
  readonly consumer: string;
  /** Aborts at the stop deadline of the consumer. */
  readonly givenUp: AbortSignal;
  /** Removes and returns the deliveries of the same key that wait in this process behind a delivery. */
  readonly takeSuccessors: (held: InFlightDelivery) => readonly InFlightDelivery[];
}

/** Settles deliveries. Each method retries until it succeeds, the delivery is lost, or the consumer stops. */
export class Settlement {
  readonly #engine: InboxEngine;
  readonly #consumer: string;
  readonly #givenUp: AbortSignal;
  readonly #takeSuccessors: (held: InFlightDelivery) => readonly InFlightDelivery[];

  constructor({ engine, consumer, givenUp, takeSuccessors }: SettlementParts) {
    this.#engine = engine;
    this.#consumer = consumer;
    this.#givenUp = givenUp;
    this.#takeSuccessors = takeSuccessors;
  }

  ack({ delivery }: InFlightDelivery): Promise<SettleResult> {
    return this.#retryUntilDone("acknowledge", delivery.signal, () => delivery.ack()).then(doneOrLost);
  }

  /** Acknowledges many deliveries with one promise each, because promises dominate its cost. Failures are retried. */
  async ackAll(all: readonly InFlightDelivery[]): Promise<readonly SettleResult[]> {
    if (this.#givenUp.aborted) return all.map(() => "lost");
    const acks = all.map(({ delivery }) => (delivery.signal.aborted ? NOTHING : ackDelivery(delivery)));
    try {
      await Promise.all(acks);
      return all.map(({ delivery }) => doneOrLost(!delivery.signal.aborted));
    } catch {
      return Promise.all(all.map((held, index) => this.#retryAck(held, acks[index])));
    }
  }

  #retryAck({ delivery }: InFlightDelivery, firstTry: Promise<void> | undefined): Promise<SettleResult> {
    let pending = firstTry;
    const ack = (): Promise<void> => {
      const current = pending ?? delivery.ack();
      pending = undefined;
      return current;
    };
    return this.#retryUntilDone("acknowledge", delivery.signal, ack).then(doneOrLost);
  }

  /**
   * Asks the transport to redeliver, and returns the later deliveries of the key. `behind`: those taken in the same
   * batch. A delivery that the transport refuses to retry is dead-lettered.
   */
  async retry(
    held: InFlightDelivery,
    retry: { delayMs: number; countsAsAttempt: boolean; error: Error },
    behind: readonly InFlightDelivery[] = [],
  ): Promise<SettleResult> {
    const { delivery } = held;
    const { delayMs, countsAsAttempt } = retry;
    const error = retry.error.message.slice(0, 1_000);
    let refusal: Error | undefined;
    const settled = await this.#retryUntilDone("retry", delivery.signal, () =>
      delivery.retry({ delayMs, countsAsAttempt, error }).catch((thrown: unknown) => {
        if (classifyFailure(thrown) !== "permanent") throw thrown;
        refusal = retryRefusedError(thrown, retry.error);
      }),
    );
    if (!settled) return "lost";
    if (refusal !== undefined) return this.deadLetter(held, "rejected", refusal);
    // Later deliveries of the key are returned before this one can be redelivered, so that they come back after it.
    const successors = [...behind, ...this.#takeSuccessors(held)];
    const released = Promise.all(successors.map((later) => this.release(later)));
    const fields = { ...this.#names(held), attempt: delivery.attempt, delayMs, countsAsAttempt, error };
    this.#engine.observer.emit("consumer.retried", fields, telemetryContext(delivery.message));
    this.#note("retry", { "sagabox.delay_ms": delayMs, "sagabox.counts_as_attempt": countsAsAttempt });
    await released;
    return "again";
  }

  /** Returns a delivery to the transport without counting an attempt. */
  async release({ delivery }: InFlightDelivery): Promise<void> {
    await this.#retryUntilDone("release", delivery.signal, () => delivery.release());
  }

  /** Settles a message that its handler ignored or refused: only the dedupe row and a reply are written. */
  async settleWithoutEffect(
    held: InFlightDelivery,
    declined: Pick<DeclinedMessage, "id" | "reply" | "supersedes">,
  ): Promise<SettleResult> {
    const { message, flaw } = held.delivery;
    const whole = { ...declined, consumer: this.#consumer, message, mayReply: flaw === undefined };
    return this.#settleInTransaction(held, "record a declined message", {
      conclude: (current) => recordDeclined(current, this.#engine, whole),
    });
  }

  /** Stores a dead letter, sends the failure reply, and acknowledges the delivery. */
  async deadLetter(held: InFlightDelivery, reason: DeadLetterReason, error: Error): Promise<SettleResult> {
    const { message, attempt: attempts } = held.delivery;
    const consumer = this.#consumer;
    // A check constraint requires attempts >= max_attempts for the reason "exhausted".
    const maxAttempts = held.registration?.settings.retry.maxAttempts ?? attempts;
    const deadLetter = {
      origin: "consumer",
      consumer,
      message,
      reason,
      attempts,
      maxAttempts,
      error,
    } as const;
    const result = await this.#settleInTransaction(held, "dead-letter", {
      conclude: async ({ scope }) => {
        if (held.delivery.flaw === undefined) {
          await respondFailed(scope, message, held.id ?? message.id, { reason, error });
        }
        return [{ statement: this.#engine.deadLetters.bury, params: burialParams(deadLetter) }];
      },
      acknowledge: () => this.#acknowledgeDeadLetter(held, error),
    });
    if (result === "done") {
      this.#note("dead_letter", { "sagabox.reason": reason });
      this.#engine.observer.emit(
        "dead_letter.buried",
        { ...this.#names(held), origin: "consumer", reason, error: error.message.slice(0, 1_000) },
        telemetryContext(message),
      );
    }
    return result;
  }

  // The dead letter in PostgreSQL is authoritative. Brokers with a dead-letter queue get a copy.
  async #acknowledgeDeadLetter(held: InFlightDelivery, error: Error): Promise<SettleResult> {
    const { delivery } = held;
    if (delivery.deadLetter === undefined) return delivery.ackWith === undefined ? this.ack(held) : "done";
    const { errorType, errorMessage, stackTrace } = describeFailure(error);
    const note: DeadLetterNote = {
      error_type: errorType,
      error_message: errorMessage,
      stack_trace: stackTrace ?? "",
      retry_count: String(delivery.attempt - 1),
      failed_at: new Date(this.#engine.clock.wallMs()).toISOString(),
      source_topic: delivery.message.topic,
      consumer_group: this.#consumer,
      original_timestamp: delivery.message.writtenAt,
    };
    return this.#copyToBroker(held, note);
  }

  // A failing dead-letter queue must not block other messages, so the copy is given up after a few tries.
  async #copyToBroker(held: InFlightDelivery, note: DeadLetterNote): Promise<SettleResult> {
    const { delivery } = held;
    const isLost = (): boolean => delivery.signal.aborted || this.#givenUp.aborted;
    const copy = async (): Promise<SettleResult> => {
      if (isLost()) return "lost";
      await delivery.deadLetter?.(note);
      return "done";
    };
    const result = await retryWithBackoff(copy, {
      backoff: COPY_BACKOFF,
      maxTries: MAX_COPY_TRIES,
      signal: this.#givenUp,
      onFailure: ({ error, retryInMs }) =>
        this.#engine.observer.emit("transport.unreachable", {
          transport: delivery.message.topic,
          doing: `copying dead letter ${delivery.message.id} to the broker`,
          error: errorText(error).slice(0, 500),
          retryInMs,
        }),
    });
    if (result !== undefined) return result;
    if (isLost()) return "lost";
    return delivery.ackWith === undefined ? this.ack(held) : "done";
  }

  /** Writes, then acknowledges. If the transport uses this database, both are one transaction. */
  async #settleInTransaction(
    held: InFlightDelivery,
    doing: string,
    {
      conclude,
      acknowledge = () => (held.delivery.ackWith === undefined ? this.ack(held) : Promise.resolve("done")),
    }: SettleSteps,
  ): Promise<SettleResult> {
    const { delivery } = held;
    const last = [...this.clearSuspect(held), ...(delivery.ackWith ? [ackStatement(delivery.ackWith)] : [])];
    let gone = false;
    const written = await this.#retryUntilDone(doing, delivery.signal, () =>
      runAttempt(this.#engine, { deadlineMs: SETTLE_MS }, async (current) => {
        await current.commit([...(await conclude(current)), ...last]);
      }).catch((error: unknown) => {
        // An earlier try committed and its answer was lost, or another worker took over: nothing is left to do.
        if (!isSagaboxError(error, "OUTBOX_LEASE_LOST")) throw error;
        gone = true;
      }),
    );
    if (gone) delivery.confirmAck?.();
    if (!written || gone) return "lost";
    delivery.confirmAck?.();
    return acknowledge();
  }

  /** The statement that removes a suspect after it was settled. Empty for other deliveries. */
  clearSuspect({ crashes, id }: InFlightDelivery): readonly CommitStatement[] {
    if (crashes === undefined || id === undefined) return [];
    return [{ statement: this.#engine.sql.acquit, params: [this.#consumer, id] }];
  }

  #note(event: string, attributes: SpanAttributes): void {
    const { spans } = this.#engine;
    if (spans.enabled) spans.currentSpan().note(event, attributes);
  }

  #names({ delivery, id }: InFlightDelivery): { consumer: string; type: string; topic: string; id: string } {
    const { type, topic } = delivery.message;
    return { consumer: this.#consumer, type, topic, id: id ?? delivery.message.id };
  }

  async #retryUntilDone(doing: string, lost: AbortSignal, action: () => Promise<unknown>): Promise<boolean> {
    if (lost.aborted) return false;
    const { observer } = this.#engine;
    const unlessLost = (): Promise<unknown> | undefined => (lost.aborted ? undefined : action());
    return (await retryUntilDone(observer, doing, this.#givenUp, unlessLost)) && !lost.aborted;
  }
}

// Turns a synchronous throw into a rejection, so that the other deliveries are still acknowledged.
function ackDelivery(delivery: Delivery): Promise<void> {
  try {
    return delivery.ack();
  } catch (error) {
    return Promise.reject(toHandlerError(error));
  }
}

function doneOrLost(settled: boolean): SettleResult {
  return settled ? "done" : "lost";
}

// Some brokers store a retried message as a copy with more headers. A foreign message may have no room for them.
function retryRefusedError(refusal: unknown, cause: Error): SagaboxError {
  const text = `The message failed, and the broker cannot keep it for a retry: ${errorText(refusal)}`;
  return new SagaboxError("HANDLER_FAILED", text, { cause });
}

export function telemetryContext({ traceparent, sagaId }: Message): TelemetryContext {
  return { traceparent, sagaId };
}

/** A message that its handler ignored or refused. */
interface DeclinedMessage {
  readonly consumer: string;
  readonly id: string;
  readonly message: Message;
  readonly reply: FailureReply;
  /** False for a message that another product published: its headers do not request a reply. */
  readonly mayReply: boolean;
  /** Earlier copies of the command. They must not be executed either if they arrive later. */
  readonly supersedes: CommandReferences | undefined;
}

/**
 * Records that the message had no effect, replies, and returns the remaining statements. The handler's transaction was
 * rolled back before this one began, so another worker may have handled the message, or an earlier copy of it, in
 * between. Then the reply reports that effect.
 */
async function recordDeclined(
  current: Attempt,
  engine: InboxEngine,
  { consumer, id, message, reply, mayReply, supersedes }: DeclinedMessage,
): Promise<readonly CommitStatement[]> {
  const { topic, type } = message;
  const { sql } = engine;
  const wantsReply = mayReply && readReplyTopic(message.headers) !== undefined;
  if (!wantsReply && supersedes === undefined) {
    return [{ statement: sql.passOver, params: [consumer, id, topic, type] }];
  }
  const claim = { consumer, id, topic, type, payload: null, expiresAt: null };
  if (!(await claimCommands(current.tx, engine, claim, [supersedes]))) return [];
  const effect = supersedes && (await findEffect(current.tx, engine, consumer, supersedes));
  if (effect !== undefined) {
    await respond(current.scope, message, id, effect.result);
    return [{ statement: sql.adopt, params: [consumer, id, effect.id, effect.stored] }];
  }
  await respondFailed(current.scope, message, id, reply);
  return [{ statement: sql.withoutEffect, params: [consumer, id] }];
}
