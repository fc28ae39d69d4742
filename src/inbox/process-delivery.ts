import { isSagaboxError, readVerdict, SagaboxError } from "../errors/index.ts";
import { readReplyTopic } from "../message/index.ts";
import { decideRetry, type FailureKind, toFailure } from "../retry/index.ts";
import { random } from "../runtime/index.ts";
import { spanFailure } from "../telemetry/index.ts";
import { type Attempt, runAttempt } from "./attempt.ts";
import {
  type EarlierCommands,
  readEarlierCommands,
  receiveReferring,
  type ReferringOutcome,
} from "./earlier-commands.ts";
import type { InboxEngine } from "./engine.ts";
import {
  batchContext,
  encryptedReplyName,
  handlerContext,
  prepareReply,
  respond,
  runInContext,
} from "./respond.ts";
import type { Received } from "./handler.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";
import { idForDedupe, readMessage } from "./read-message.ts";
import { type Outcome, type Receipt, receiveOnce, toHandlerError } from "./receive-once.ts";
import { receiveStatement, type StatementCache } from "./receive-statement.ts";
import { redact } from "./redact.ts";
import type { ConsumerDefinition, Registration } from "./registry.ts";
import { type SettleResult, type Settlement, telemetryContext } from "./settlement.ts";

export interface ProcessorParts {
  readonly engine: InboxEngine;
  readonly definition: ConsumerDefinition;
  readonly settlement: Settlement;
  /** Attempts with an open transaction. Stopping the consumer may abort them. */
  readonly attempts: Set<Attempt>;
  readonly statements: StatementCache;
  /** Types without a handler that were reported already. Default: none. */
  readonly ignoredTypes?: Set<string>;
}

/** Redelivery delay, in milliseconds, of a message that this worker leaves to another worker of the consumer. */
const HANDLED_ELSEWHERE_MS = 2_000;
/** Limits memory if a producer sends arbitrary types. A type beyond the limit is reported as first seen each time. */
const MAX_IGNORED_TYPES = 1_000;

/** Processes one delivery from arrival to settlement. Its methods do not throw: each failure settles the delivery. */
export class DeliveryProcessor {
  readonly #engine: InboxEngine;
  readonly #definition: ConsumerDefinition;
  readonly #settlement: Settlement;
  readonly #statements: StatementCache;
  readonly #attempts: Set<Attempt>;
  readonly #ignoredTypes: Set<string>;
  readonly #uncountedFailures = new UncountedFailures();

  constructor({
    engine,
    definition,
    settlement,
    attempts,
    statements,
    ignoredTypes = new Set(),
  }: ProcessorParts) {
    this.#ignoredTypes = ignoredTypes;
    this.#engine = engine;
    this.#definition = definition;
    this.#settlement = settlement;
    this.#attempts = attempts;
    this.#statements = statements;
  }

  /** `behind`: later deliveries of the same key in the same batch. They go back to the transport if this one is retried. */
  async process(held: InFlightDelivery, behind: readonly InFlightDelivery[] = []): Promise<SettleResult> {
    const { spans } = this.#engine;
    if (!spans.enabled) return this.#process(held, behind);
    const { message, attempt: attemptNumber } = held.delivery;
    const span = spans.process(message, { consumer: this.#definition.name, attempt: attemptNumber });
    try {
      const result = await span.run(() => this.#process(held, behind));
      span.set({ "sagabox.settle_result": result });
      return result;
    } finally {
      span.end();
    }
  }

  async #process(held: InFlightDelivery, behind: readonly InFlightDelivery[]): Promise<SettleResult> {
    if (held.delivery.signal.aborted) return "lost";
    if ((held.crashes ?? 0) >= this.#definition.settings.maxCrashes) return this.#deadLetterPoison(held);
    const { registration, delivery, id: known } = held;
    if (delivery.flaw !== undefined && (registration === undefined || known === undefined)) {
      return this.#settlement.deadLetter(held, "rejected", delivery.flaw);
    }
    if (registration === undefined) return this.#handleUnknown(held);
    try {
      const id = idForDedupe(held.id ?? held.delivery.message.id);
      return await this.#receive(held, registration, id);
    } catch (thrown) {
      return this.fail(held, toHandlerError(thrown), behind);
    }
  }

  /**
   * Settles a delivery after its attempt: acknowledges it, or dead-letters it if it had expired. `isAcked`: the attempt's
   * transaction has acknowledged it already.
   */
  settle(
    held: InFlightDelivery,
    outcome: ReferringOutcome<unknown>,
    isAcked: boolean,
  ): Promise<SettleResult> {
    this.#uncountedFailures.forget(held.id);
    const { message } = held.delivery;
    const names = {
      consumer: this.#definition.name,
      type: message.type,
      topic: message.topic,
      id: held.id ?? message.id,
    };
    switch (outcome.kind) {
      case "processed":
        this.#engine.observer.emit(
          "consumer.processed",
          { ...names, durationMs: outcome.durationMs },
          telemetryContext(message),
        );
        return this.#acknowledge(held, isAcked);
      case "skipped":
        this.#engine.observer.emit(
          "consumer.skipped",
          { ...names, reason: outcome.reason },
          telemetryContext(message),
        );
        return this.#acknowledge(held, isAcked);
      case "duplicate":
        this.#engine.observer.emit("consumer.duplicate", names, telemetryContext(message));
        return this.#settlement.ack(held);
      case "expired":
        return this.#settlement.deadLetter(held, "expired", messageExpired(message.expiresAt));
    }
  }

  /** Settles deliveries whose handlers ran in one transaction. `isAcked`: that transaction has acknowledged them. */
  async settleAll(
    all: readonly InFlightDelivery[],
    durationMs: number,
    isAcked: boolean,
  ): Promise<readonly SettleResult[]> {
    const { name: consumer } = this.#definition;
    for (const { delivery, id } of all) {
      const { message } = delivery;
      const { type, topic } = message;
      const fields = { consumer, type, topic, id: id ?? message.id, durationMs };
      this.#uncountedFailures.forget(id);
      this.#engine.observer.emit("consumer.processed", fields, telemetryContext(message));
    }
    if (!isAcked) return this.#settlement.ackAll(all);
    for (const { delivery } of all) delivery.confirmAck?.();
    return all.map(() => "done");
  }

  #acknowledge(held: InFlightDelivery, isAcked: boolean): Promise<SettleResult> {
    if (!isAcked) return this.#settlement.ack(held);
    held.delivery.confirmAck?.();
    return Promise.resolve("done");
  }

  /** Settles a delivery after a failure, as decided by the handler's verdict, the user's classifier and the retry policy. */
  async fail(
    held: InFlightDelivery,
    thrown: Error,
    behind: readonly InFlightDelivery[] = [],
  ): Promise<SettleResult> {
    const { delivery, registration, id } = held;
    const error = redact(thrown, held.secrets);
    if (delivery.signal.aborted) return "lost";
    if (this.#engine.spans.enabled) this.#engine.spans.currentSpan().fail(spanFailure(error));
    const verdict = readVerdict(error)?.kind;
    if ((verdict === "ignore" || verdict === "refuse") && id !== undefined) {
      this.#uncountedFailures.forget(id);
      const reply = { reason: verdict === "ignore" ? "ignored" : "refused", error };
      return this.#settlement.settleWithoutEffect(held, {
        id,
        reply,
        supersedes: this.#readEarlier(held, id)?.supersedes,
      });
    }
    if (registration === undefined || id === undefined)
      return this.#settlement.deadLetter(held, "rejected", error);
    const { retry, classify, deadlineMs } = registration.settings;
    if (isSagaboxError(error, "HANDLER_TIMEOUT")) {
      const { name: consumer } = this.#definition;
      const fields = { consumer, type: delivery.message.type, id, deadlineMs };
      this.#engine.observer.emit("consumer.stuck", fields, telemetryContext(delivery.message));
    }
    const failure = toFailure(error, classify);
    const history = {
      attempt: delivery.attempt,
      uncountedBefore: this.#uncountedFailures.count(id, failure.kind),
    };
    const decision = decideRetry(retry, history, failure, random);
    if (decision.kind === "retry") {
      const result = await this.#settlement.retry(held, { ...decision, error }, behind);
      if (result !== "again") this.#uncountedFailures.forget(id);
      return result;
    }
    return this.#settlement.deadLetter(
      held,
      decision.reason === "permanent" ? "rejected" : "exhausted",
      error,
    );
  }

  async #receive(held: InFlightDelivery, registration: Registration, id: string): Promise<SettleResult> {
    const earlier = this.#readEarlier(held, id);
    const reading = readMessage(this.#engine, registration.contract, held);
    const message = reading instanceof Promise ? await reading : reading;
    const receipt = this.#createReceipt(held, registration, id);
    const { work } = registration;
    if (earlier === undefined && work.kind === "statement") {
      const outcome = await receiveStatement(this.#engine, this.#statements, receipt, work.build(message));
      return this.#settleOutcome(held, await this.#respondAfterStatement(message, receipt, outcome), false);
    }
    const answer = (current: Attempt, result: unknown): Promise<void> =>
      respond(current.scope, message, id, result, encryptedReplyName(registration.contract));
    const handle = async (current: Attempt): Promise<unknown> => {
      const result = await runInContext(message, id, () =>
        this.#callHandler(held, id, message, registration, current),
      );
      await answer(current, result);
      return result;
    };
    const outcome = await (earlier === undefined
      ? receiveOnce(this.#engine, receipt, handle)
      : receiveReferring(this.#engine, receipt, { earlier, handle, answer }));
    return this.#settleOutcome(held, outcome, held.delivery.ackWith !== undefined);
  }

  #settleOutcome(
    held: InFlightDelivery,
    outcome: ReferringOutcome<unknown>,
    isAcked: boolean,
  ): Promise<SettleResult> {
    const { spans } = this.#engine;
    if (spans.enabled) spans.currentSpan().set({ "sagabox.outcome": outcome.kind });
    return this.settle(held, outcome, isAcked);
  }

  async #callHandler(
    { delivery }: InFlightDelivery,
    id: string,
    message: Received,
    { work, consumer, contract }: Registration,
    current: Attempt,
  ): Promise<unknown> {
    switch (work.kind) {
      case "each": {
        const context = handlerContext(consumer, id, delivery.attempt, current);
        return prepareReply(this.#engine, contract, message, await work.handle(message, context), current);
      }
      case "bulk":
        await work.handle([message], batchContext(consumer, current));
        return undefined;
      case "statement": {
        const { text, params = [] } = work.build(message);
        await current.tx.run(this.#statements.wrapClaimed(text, params.length), [...params, consumer, id]);
        return undefined;
      }
    }
  }

  #readEarlier({ refers, delivery }: InFlightDelivery, id: string): EarlierCommands | undefined {
    return refers ? readEarlierCommands(delivery.message, id, this.#definition.handlers) : undefined;
  }

  // A statement commits its own effect, so the reply is written afterwards. A duplicate is answered again, because the
  // process may have died before the reply; a second reply has no effect.
  async #respondAfterStatement(
    message: Received,
    { id, deadlineMs }: Receipt,
    outcome: Outcome<undefined>,
  ): Promise<Outcome<undefined>> {
    if (outcome.kind === "expired" || readReplyTopic(message.headers) === undefined) return outcome;
    await runAttempt(this.#engine, { deadlineMs }, async (current) => {
      await respond(current.scope, message, id, undefined);
      await current.commit([]);
    });
    return outcome;
  }

  #createReceipt(held: InFlightDelivery, { settings, internal }: Registration, id: string): Receipt {
    const { message, signal, ackWith } = held.delivery;
    return {
      forHandler: !internal,
      consumer: this.#definition.name,
      id,
      topic: message.topic,
      type: message.type,
      payload: this.#definition.settings.storePayload ? message.data : null,
      expiresAt: message.expiresAt,
      deadlineMs: settings.deadlineMs,
      lost: signal,
      openAttempts: this.#attempts,
      ackWith,
      onSuccess: this.#settlement.clearSuspect(held),
    };
  }

  // By default, ignore events: a topic may carry types that the consumer did not register. Dead-letter commands: they must
  // not be lost.
  #handleUnknown(held: InFlightDelivery): Promise<SettleResult> {
    const { message } = held.delivery;
    if (this.#isForOthers(held)) return this.#retryElsewhere(held);
    const policy =
      this.#definition.settings.unknown ?? (message.kind === "command" ? "dead-letter" : "ignore");
    if (policy === "ignore") return this.#ignoreUnknown(held);
    const error = handlerMissing(this.#definition.name, message.type);
    return this.#settlement.deadLetter(held, "rejected", error);
  }

  // `consumer.passed_over` is the only sign that a message type was renamed and its handler is no longer called.
  #ignoreUnknown(held: InFlightDelivery): Promise<SettleResult> {
    const { message } = held.delivery;
    const { type, topic, id } = message;
    const isFirst = this.#definition.settings.unknown === null && !this.#ignoredTypes.has(type);
    if (isFirst && this.#ignoredTypes.size < MAX_IGNORED_TYPES) this.#ignoredTypes.add(type);
    const names = { consumer: this.#definition.name, type, topic, id };
    this.#engine.observer.emit(
      "consumer.passed_over",
      { ...names, first: isFirst },
      telemetryContext(message),
    );
    return this.#settlement.ack(held);
  }

  // With `ackWith` (PostgreSQL transport), the workers of a consumer share its lanes, so each receives the topics that any of
  // them subscribed to. Brokers deliver only the topics that this worker subscribed to.
  #isForOthers({ delivery }: InFlightDelivery): boolean {
    return delivery.ackWith !== undefined && !this.#definition.topics.includes(delivery.message.topic);
  }

  // Another worker of this consumer subscribed to the topic, most likely a newer version. That worker handles it.
  #retryElsewhere(held: InFlightDelivery): Promise<SettleResult> {
    const error = handledElsewhere(this.#definition.name, held.delivery.message.topic);
    return this.#settlement.retry(held, { delayMs: HANDLED_ELSEWHERE_MS, countsAsAttempt: false, error });
  }

  #deadLetterPoison(held: InFlightDelivery): Promise<SettleResult> {
    this.#uncountedFailures.forget(held.id);
    return this.#settlement.deadLetter(held, "poison", processKilled(held.crashes));
  }
}

function messageExpired(expiresAt: string | null): SagaboxError {
  return new SagaboxError("MESSAGE_EXPIRED", `The message expired at ${expiresAt ?? "an unknown time"}.`);
}

function processKilled(crashes: number | undefined): SagaboxError {
  return new SagaboxError(
    "MESSAGE_KILLS_PROCESS",
    `The process died ${crashes} times while it handled only this message.`,
  );
}

function handlerMissing(consumer: string, type: string): SagaboxError {
  return new SagaboxError(
    "HANDLER_MISSING",
    `Consumer "${consumer}" has no handler for "${type}". Register one, or set unknown: "ignore".`,
  );
}

function handledElsewhere(consumer: string, topic: string): SagaboxError {
  return new SagaboxError(
    "HANDLER_MISSING",
    `This process has no handler of consumer "${consumer}" for topic "${topic}", but another process has. ` +
      "The message waits for that process. Register the same handlers in all processes of a consumer.",
  );
}

/** Maximum number of counts. At the limit, the delivery that failed longest ago restarts with the shortest delay. */
const MAX_TRACKED = 10_000;

/**
 * Counts the consecutive failures of each delivery that do not count as attempts, so that their retry delays still grow.
 * The counts are kept in memory: another worker, or this one after a restart, begins at zero.
 */
export class UncountedFailures {
  readonly #counts = new Map<string, number>();
  readonly #max: number;

  constructor(max = MAX_TRACKED) {
    this.#max = max;
  }

  /** Returns how many failures were counted before. Counts an infrastructure failure; any other resets the count. */
  count(id: string, kind: FailureKind): number {
    const before = this.#counts.get(id) ?? 0;
    this.#counts.delete(id); // set() below then inserts it as the newest
    if (kind !== "infrastructure") return before;
    if (this.#counts.size >= this.#max) this.#forgetOldest();
    this.#counts.set(id, before + 1);
    return before;
  }

  /** Resets the count of a delivery. Cheap enough to call for every settled delivery. */
  forget(id: string | undefined): void {
    if (this.#counts.size > 0 && id !== undefined) this.#counts.delete(id);
  }

  #forgetOldest(): void {
    for (const oldest of this.#counts.keys()) {
      this.#counts.delete(oldest);
      return;
    }
  }
}
