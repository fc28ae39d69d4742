import { burialParams, type DeadLetterReason, describeFailure } from "../dead-letter/index.ts";
import { errorText, isSagaboxError, SagaboxError } from "../errors/index.ts";
import { type Message, readReplyTopic } from "../message/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { retryWithBackoff } from "../runtime/index.ts";
import type { CommitStatement } from "../storage/index.ts";
import type { SpanAttributes, TelemetryContext } from "../telemetry/index.ts";
import type { DeadLetterNote, Delivery } from "../transport/index.ts";
import { ackStatement, attempt, type Attempt } from "./attempt.ts";
import { claimCommands, findEffect } from "./claim-commands.ts";
import type { InboxEngine } from "./engine.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";
import { persist } from "./persist.ts";
import { asError } from "./receive-once.ts";
import type { Earlier } from "./references.ts";
import { type FailureReply, respond, respondFailed } from "./respond.ts";

/** done: settled for good · again: it comes back, so its successors must wait · lost: somebody else has it. */
export type Fate = "done" | "again" | "lost";

const SETTLE_MS = 30_000;
const MAX_COPY_TRIES = 5;
const COPY_BACKOFF = { firstMs: 200, maxMs: 5_000 };
const NOTHING = Promise.resolve();

/** How a delivery ends that was not handled. */
interface SettleSteps {
  /** Answers whoever asked for a reply, in the transaction in which what it resolves with is written. */
  readonly conclude: (current: Attempt) => Promise<readonly CommitStatement[]>;
  readonly acknowledge?: () => Promise<Fate>;
}

interface SettlementParts {
  readonly engine: InboxEngine;
  readonly consumer: string;
  /** Aborts when the consumer ends without waiting any longer. */
  readonly givenUp: AbortSignal;
  /** Hands over everything of the same key that waits in this process behind a delivery. */
  readonly takeSuccessors: (held: InFlightDelivery) => readonly InFlightDelivery[];
}

/** The ends a delivery can have. Each is tried until it works, or until the delivery is no longer ours. */
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

  ack({ delivery }: InFlightDelivery): Promise<Fate> {
    return this.#persist("acknowledge", delivery.signal, () => delivery.ack()).then(doneOrLost);
  }

  /** Many at once. A promise for each is what costs here, so they have more than one only where something went wrong. */
  async ackAll(all: readonly InFlightDelivery[]): Promise<readonly Fate[]> {
    if (this.#givenUp.aborted) return all.map(() => "lost");
    const asked = all.map(({ delivery }) => (delivery.signal.aborted ? NOTHING : ackDelivery(delivery)));
    try {
      await Promise.all(asked);
      return all.map(({ delivery }) => doneOrLost(!delivery.signal.aborted));
    } catch {
      return Promise.all(all.map((held, index) => this.#retryAck(held, asked[index])));
    }
  }

  #retryAck({ delivery }: InFlightDelivery, asked: Promise<void> | undefined): Promise<Fate> {
    let first = asked;
    const ack = (): Promise<void> => {
      const asking = first ?? delivery.ack();
      first = undefined;
      return asking;
    };
    return this.#persist("acknowledge", delivery.signal, ack).then(doneOrLost);
  }

  /** `behind`: what was taken together with it and follows it in its key. */
  async retry(
    held: InFlightDelivery,
    retry: { delayMs: number; charged: boolean; error: Error },
    behind: readonly InFlightDelivery[] = [],
  ): Promise<Fate> {
    const { delivery } = held;
    const { delayMs, charged } = retry;
    const error = retry.error.message.slice(0, 1_000);
    let refusal: Error | undefined;
    const settled = await this.#persist("retry", delivery.signal, () =>
      delivery.retry({ delayMs, charged, error }).catch((thrown: unknown) => {
        if (classifyFailure(thrown) !== "permanent") throw thrown;
        refusal = withoutRetry(thrown, retry.error);
      }),
    );
    if (!settled) return "lost";
    if (refusal !== undefined) return this.bury(held, "rejected", refusal);
    // What arrived behind it must come back behind it: given back at once, before it can be delivered again.
    const successors = [...behind, ...this.#takeSuccessors(held)];
    const released = Promise.all(successors.map((later) => this.release(later)));
    const fields = { ...this.#names(held), attempt: delivery.attempt, delayMs, charged, error };
    this.#engine.observer.emit("consumer.retried", fields, telemetryContext(delivery.message));
    this.#note("retry", { "sagabox.delay_ms": delayMs, "sagabox.charged": charged });
    await released;
    return "again";
  }

  async release({ delivery }: InFlightDelivery): Promise<void> {
    await this.#persist("release", delivery.signal, () => delivery.release());
  }

  /** Handled by decision: nothing is written but that it was seen. */
  async pass(
    held: InFlightDelivery,
    passed: Pick<PassedMessage, "id" | "given" | "supersedes">,
  ): Promise<Fate> {
    const { message, flaw } = held.delivery;
    const whole = { ...passed, consumer: this.#consumer, message, answering: flaw === undefined };
    return this.#settleInTransaction(held, "pass over", {
      conclude: (current) => passOver(current, this.#engine, whole),
    });
  }

  async bury(held: InFlightDelivery, reason: DeadLetterReason, error: Error): Promise<Fate> {
    const { message, attempt: attempts } = held.delivery;
    const consumer = this.#consumer;
    // The table holds us to it: exhausted means that nothing was left.
    const maxAttempts = held.registration?.settings.retry.maxAttempts ?? attempts;
    const letter = { origin: "consumer", consumer, message, reason, attempts, maxAttempts, error } as const;
    const fate = await this.#settleInTransaction(held, "bury", {
      conclude: async ({ scope }) => {
        if (held.delivery.flaw === undefined) {
          await respondFailed(scope, message, held.id ?? message.id, { reason, error });
        }
        return [{ statement: this.#engine.deadLetters.bury, params: burialParams(letter) }];
      },
      acknowledge: () => this.#putAside(held, error),
    });
    if (fate === "done") {
      this.#note("dead_letter", { "sagabox.reason": reason });
      this.#engine.observer.emit(
        "dead_letter.buried",
        { ...this.#names(held), origin: "consumer", reason, error: error.message.slice(0, 1_000) },
        telemetryContext(message),
      );
    }
    return fate;
  }

  // The letter in Postgres is the one that counts; the broker's copy is for those who look there.
  async #putAside(held: InFlightDelivery, error: Error): Promise<Fate> {
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

  // A place that takes no letters must not hold up those who are alive.
  async #copyToBroker(held: InFlightDelivery, note: DeadLetterNote): Promise<Fate> {
    const { delivery } = held;
    const isLost = (): boolean => delivery.signal.aborted || this.#givenUp.aborted;
    const copy = async (): Promise<Fate> => {
      if (isLost()) return "lost";
      await delivery.deadLetter?.(note);
      return "done";
    };
    const fate = await retryWithBackoff(copy, {
      backoff: COPY_BACKOFF,
      maxTries: MAX_COPY_TRIES,
      signal: this.#givenUp,
      onFailure: ({ error, retryInMs }) =>
        this.#engine.observer.emit("transport.unreachable", {
          transport: delivery.message.topic,
          doing: `showing dead letter ${delivery.message.id} at the broker`,
          error: errorText(error).slice(0, 500),
          retryInMs,
        }),
    });
    if (fate !== undefined) return fate;
    if (isLost()) return "lost";
    return delivery.ackWith === undefined ? this.ack(held) : "done";
  }

  /** Writes and acknowledges in one transaction where the transport lives in this database, else one after the other. */
  async #settleInTransaction(
    held: InFlightDelivery,
    doing: string,
    {
      conclude,
      acknowledge = () => (held.delivery.ackWith === undefined ? this.ack(held) : Promise.resolve("done")),
    }: SettleSteps,
  ): Promise<Fate> {
    const { delivery } = held;
    const last = [...this.clearSuspect(held), ...(delivery.ackWith ? [ackStatement(delivery.ackWith)] : [])];
    let gone = false;
    const written = await this.#persist(doing, delivery.signal, () =>
      attempt(this.#engine, { deadlineMs: SETTLE_MS }, async (current) => {
        await current.commit([...(await conclude(current)), ...last]);
      }).catch((error: unknown) => {
        // Written by an earlier try whose answer was lost, or taken over by another member: done either way.
        if (!isSagaboxError(error, "OUTBOX_LEASE_LOST")) throw error;
        gone = true;
      }),
    );
    if (gone) delivery.confirmAck?.();
    if (!written || gone) return "lost";
    delivery.confirmAck?.();
    return acknowledge();
  }

  /** What a suspect leaves behind when it is through. */
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

  async #persist(doing: string, lost: AbortSignal, action: () => Promise<unknown>): Promise<boolean> {
    if (lost.aborted) return false;
    const { observer } = this.#engine;
    const unlessLost = (): Promise<unknown> | undefined => (lost.aborted ? undefined : action());
    return (await persist(observer, doing, this.#givenUp, unlessLost)) && !lost.aborted;
  }
}

// One that throws at once must not keep the others from being asked.
function ackDelivery(delivery: Delivery): Promise<void> {
  try {
    return delivery.ack();
  } catch (error) {
    return Promise.reject(asError(error));
  }
}

function doneOrLost(settled: boolean): Fate {
  return settled ? "done" : "lost";
}

// Some brokers keep what is tried again as a copy with more headers, and not everything of others has room for them.
function withoutRetry(refusal: unknown, cause: Error): SagaboxError {
  const why = errorText(refusal);
  const text = `The message failed, and the broker cannot keep it for another try: ${why}`;
  return new SagaboxError("HANDLER_FAILED", text, { cause });
}

export function telemetryContext({ traceparent, sagaId }: Message): TelemetryContext {
  return { traceparent, sagaId };
}

/** A message whose handler decided that nothing is to be done. */
interface PassedMessage {
  readonly consumer: string;
  readonly id: string;
  readonly message: Message;
  readonly given: FailureReply;
  /** False for a stranger's message, whose headers mean nothing to us. */
  readonly answering: boolean;
  /** What it stands for must not be done either, should it come late. */
  readonly supersedes: Earlier | undefined;
}

/**
 * Notes that the message was seen without effect, and answers; resolves with what is left to write. The handler's own
 * transaction is over by now, so another worker may have handled the message, or an earlier copy of it, in between: then
 * that is what counts.
 */
async function passOver(
  current: Attempt,
  engine: InboxEngine,
  { consumer, id, message, given, answering, supersedes }: PassedMessage,
): Promise<readonly CommitStatement[]> {
  const { topic, type } = message;
  const { sql } = engine;
  const asked = answering && readReplyTopic(message.headers) !== undefined;
  if (!asked && supersedes === undefined) {
    return [{ statement: sql.passOver, params: [consumer, id, topic, type] }];
  }
  const claim = { consumer, id, topic, type, payload: null, expiresAt: null };
  if (!(await claimCommands(current.tx, engine, claim, [supersedes]))) return [];
  const effect = supersedes && (await findEffect(current.tx, engine, consumer, supersedes));
  if (effect !== undefined) {
    await respond(current.scope, message, id, effect.result);
    return [{ statement: sql.adopt, params: [consumer, id, effect.id, effect.stored] }];
  }
  await respondFailed(current.scope, message, id, given);
  return [{ statement: sql.withoutEffect, params: [consumer, id] }];
}
