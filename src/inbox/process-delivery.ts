import { isSagaboxError, readVerdict } from "../errors/index.ts";
import { readReplyTopic } from "../message/index.ts";
import { decideRetry, toFailure } from "../retry/index.ts";
import { random } from "../runtime/index.ts";
import { spanFailure } from "../telemetry/index.ts";
import { prepareAnswer, encryptedReplyName } from "./answer.ts";
import { attempt, type Attempt } from "./attempt.ts";
import { messageExpired, handledElsewhere, handlerMissing, killsProcess } from "./delivery-errors.ts";
import type { InboxEngine } from "./engine.ts";
import type { Received } from "./handler.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";
import { batchContext, handlerContext, runInContext } from "./handler-context.ts";
import { idForDedupe, readMessage } from "./read-message.ts";
import { redact } from "./redact.ts";
import { asError, receiveOnce, type Outcome, type Receipt } from "./receive-once.ts";
import { receiveReferring, type ReferringOutcome } from "./receive-referring.ts";
import { receiveStatement, type StatementCache } from "./receive-statement.ts";
import { earlierCommands, type EarlierCommands } from "./references.ts";
import type { ConsumerDefinition, Registration } from "./registry.ts";
import { respond } from "./respond.ts";
import { telemetryContext, type Fate, type Settlement } from "./settlement.ts";
import { UncountedFailures } from "./uncounted-failures.ts";

export interface ProcessorParts {
  readonly engine: InboxEngine;
  readonly definition: ConsumerDefinition;
  readonly settlement: Settlement;
  /** The transactions that are open, so that a stop can end them. */
  readonly attempts: Set<Attempt>;
  readonly statements: StatementCache;
}

/** When a message that only other members can handle is looked at again. */
const NOT_OURS_MS = 2_000;
/** A producer that makes its types up must not fill the memory; what comes behind these is told each time, and the log counts it. */
const MAX_TYPES = 1_000;

/** One delivery from arrival to settlement. Nothing in here throws: every end is a fate. */
export class DeliveryProcessor {
  readonly #engine: InboxEngine;
  readonly #definition: ConsumerDefinition;
  readonly #settlement: Settlement;
  readonly #statements: StatementCache;
  readonly #attempts: Set<Attempt>;
  /** Types that were told of. */
  readonly #passedOver = new Set<string>();
  readonly #uncountedFailures = new UncountedFailures();

  constructor({ engine, definition, settlement, attempts, statements }: ProcessorParts) {
    this.#engine = engine;
    this.#definition = definition;
    this.#settlement = settlement;
    this.#attempts = attempts;
    this.#statements = statements;
  }

  /** `behind`: what was taken together with it and follows it in its key; it comes back with it. */
  async process(held: InFlightDelivery, behind: readonly InFlightDelivery[] = []): Promise<Fate> {
    const { spans } = this.#engine;
    if (!spans.enabled) return this.#process(held, behind);
    const { message, attempt: nr } = held.delivery;
    const span = spans.process(message, { consumer: this.#definition.name, attempt: nr });
    try {
      const fate = await span.run(() => this.#process(held, behind));
      span.set({ "sagabox.fate": fate });
      return fate;
    } finally {
      span.end();
    }
  }

  async #process(held: InFlightDelivery, behind: readonly InFlightDelivery[]): Promise<Fate> {
    if (held.delivery.signal.aborted) return "lost";
    if ((held.crashes ?? 0) >= this.#definition.settings.maxCrashes) return this.#poison(held);
    const { registration, delivery, id: known } = held;
    if (delivery.flaw !== undefined && (registration === undefined || known === undefined)) {
      return this.#settlement.bury(held, "rejected", delivery.flaw);
    }
    if (registration === undefined) return this.#handleUnknown(held);
    try {
      const id = idForDedupe(held.id ?? held.delivery.message.id);
      return await this.#receive(held, registration, id);
    } catch (thrown) {
      return this.fail(held, asError(thrown), behind);
    }
  }

  /** After the effect: acknowledge, or bury what came too late. */
  settle(held: InFlightDelivery, outcome: ReferringOutcome<unknown>, ackedIn: boolean): Promise<Fate> {
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
        return this.#acknowledge(held, ackedIn);
      case "skipped":
        this.#engine.observer.emit(
          "consumer.skipped",
          { ...names, reason: outcome.reason },
          telemetryContext(message),
        );
        return this.#acknowledge(held, ackedIn);
      case "duplicate":
        this.#engine.observer.emit("consumer.duplicate", names, telemetryContext(message));
        return this.#settlement.ack(held);
      case "expired":
        return this.#settlement.bury(held, "expired", messageExpired(message.expiresAt));
    }
  }

  /** The same for those that were handled together. */
  async settleAll(
    all: readonly InFlightDelivery[],
    durationMs: number,
    ackedIn: boolean,
  ): Promise<readonly Fate[]> {
    const { name: consumer } = this.#definition;
    for (const { delivery, id } of all) {
      const { message } = delivery;
      const { type, topic } = message;
      const fields = { consumer, type, topic, id: id ?? message.id, durationMs };
      this.#uncountedFailures.forget(id);
      this.#engine.observer.emit("consumer.processed", fields, telemetryContext(message));
    }
    if (!ackedIn) return this.#settlement.ackAll(all);
    for (const { delivery } of all) delivery.acked?.();
    return all.map(() => "done");
  }

  #acknowledge(held: InFlightDelivery, ackedIn: boolean): Promise<Fate> {
    if (!ackedIn) return this.#settlement.ack(held);
    held.delivery.acked?.();
    return Promise.resolve("done");
  }

  /** After a failure: the handler's verdict, the user's classifier and the policy decide. */
  async fail(held: InFlightDelivery, thrown: Error, behind: readonly InFlightDelivery[] = []): Promise<Fate> {
    const { delivery, registration, id } = held;
    const error = redact(thrown, held.secrets);
    if (delivery.signal.aborted) return "lost";
    if (this.#engine.spans.enabled) this.#engine.spans.currentSpan().fail(spanFailure(error));
    const verdict = readVerdict(error)?.kind;
    if ((verdict === "ignore" || verdict === "refuse") && id !== undefined) {
      this.#uncountedFailures.forget(id);
      const given = { reason: verdict === "ignore" ? "ignored" : "refused", error };
      return this.#settlement.pass(held, { id, given, supersedes: this.#earlier(held, id)?.supersedes });
    }
    if (registration === undefined || id === undefined) return this.#settlement.bury(held, "rejected", error);
    const { retry, classify, deadlineMs } = registration.settings;
    if (isSagaboxError(error, "HANDLER_TIMEOUT")) {
      const { name: consumer } = this.#definition;
      const fields = { consumer, type: delivery.message.type, id, deadlineMs };
      this.#engine.observer.emit("consumer.stuck", fields, telemetryContext(delivery.message));
    }
    const failure = toFailure(error, classify);
    const tried = {
      attempt: delivery.attempt,
      unchargedBefore: this.#uncountedFailures.count(id, failure.kind),
    };
    const decision = decideRetry(retry, tried, failure, random);
    if (decision.kind === "retry") {
      const fate = await this.#settlement.retry(held, { ...decision, error }, behind);
      if (fate !== "again") this.#uncountedFailures.forget(id);
      return fate;
    }
    return this.#settlement.bury(held, decision.reason === "permanent" ? "rejected" : "exhausted", error);
  }

  async #receive(held: InFlightDelivery, registration: Registration, id: string): Promise<Fate> {
    const earlier = this.#earlier(held, id);
    const reading = readMessage(this.#engine, registration.contract, held);
    const message = reading instanceof Promise ? await reading : reading;
    const receipt = this.#receipt(held, registration, id);
    const { work } = registration;
    if (earlier === undefined && work.kind === "statement") {
      const outcome = await receiveStatement(this.#engine, this.#statements, receipt, work.build(message));
      return this.#conclude(held, await this.#handleAndRespond(message, receipt, outcome), false);
    }
    const answer = (current: Attempt, said: unknown): Promise<void> =>
      respond(current.scope, message, id, said, encryptedReplyName(registration.contract));
    const handle = async (current: Attempt): Promise<unknown> => {
      const said = await runInContext(message, id, () =>
        this.#work(held, id, message, registration, current),
      );
      await answer(current, said);
      return said;
    };
    const outcome = await (earlier === undefined
      ? receiveOnce(this.#engine, receipt, handle)
      : receiveReferring(this.#engine, receipt, { earlier, handle, answer }));
    return this.#conclude(held, outcome, held.delivery.ackWith !== undefined);
  }

  #conclude(held: InFlightDelivery, outcome: ReferringOutcome<unknown>, ackedIn: boolean): Promise<Fate> {
    const { spans } = this.#engine;
    if (spans.enabled) spans.currentSpan().set({ "sagabox.outcome": outcome.kind });
    return this.settle(held, outcome, ackedIn);
  }

  async #work(
    { delivery }: InFlightDelivery,
    id: string,
    message: Received,
    { work, consumer, contract }: Registration,
    current: Attempt,
  ): Promise<unknown> {
    switch (work.kind) {
      case "each": {
        const context = handlerContext(consumer, id, delivery.attempt, current);
        return prepareAnswer(this.#engine, contract, message, await work.handle(message, context), current);
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

  #earlier({ refers, delivery }: InFlightDelivery, id: string): EarlierCommands | undefined {
    return refers ? earlierCommands(delivery.message, id, this.#definition.handlers) : undefined;
  }

  // The effect of a statement commits by itself, so the reply follows it; it is repeated for a duplicate, since the
  // process may have died in between, and the second one changes nothing.
  async #handleAndRespond(
    message: Received,
    { id, deadlineMs }: Receipt,
    outcome: Outcome<undefined>,
  ): Promise<Outcome<undefined>> {
    if (outcome.kind === "expired" || readReplyTopic(message.headers) === undefined) return outcome;
    await attempt(this.#engine, { deadlineMs }, async (current) => {
      await respond(current.scope, message, id, undefined);
      await current.commit([]);
    });
    return outcome;
  }

  #receipt(held: InFlightDelivery, { settings }: Registration, id: string): Receipt {
    const { message, signal, ackWith } = held.delivery;
    return {
      consumer: this.#definition.name,
      id,
      topic: message.topic,
      type: message.type,
      payload: this.#definition.settings.storePayload ? message.data : null,
      expiresAt: message.expiresAt,
      deadlineMs: settings.deadlineMs,
      lost: signal,
      among: this.#attempts,
      ackWith,
      onSuccess: this.#settlement.clearSuspect(held),
    };
  }

  // A topic may carry types this consumer never asked for; only a command must not vanish.
  #handleUnknown(held: InFlightDelivery): Promise<Fate> {
    const { message } = held.delivery;
    if (this.#isForOthers(held)) return this.#retryElsewhere(held);
    const policy =
      this.#definition.settings.unknown ?? (message.kind === "command" ? "dead-letter" : "ignore");
    if (policy === "ignore") return this.#passOver(held);
    const error = handlerMissing(this.#definition.name, message.type);
    return this.#settlement.bury(held, "rejected", error);
  }

  // After a type was renamed this is all that tells why nothing happens any more.
  #passOver(held: InFlightDelivery): Promise<Fate> {
    const { message } = held.delivery;
    const { type, topic, id } = message;
    const first = this.#definition.settings.unknown === null && !this.#passedOver.has(type);
    if (first && this.#passedOver.size < MAX_TYPES) this.#passedOver.add(type);
    const names = { consumer: this.#definition.name, type, topic, id };
    this.#engine.observer.emit("consumer.passed_over", { ...names, first }, telemetryContext(message));
    return this.#settlement.ack(held);
  }

  // Where the members of a consumer share its lanes, each is handed what any of them asked for; brokers ask each alone.
  #isForOthers({ delivery }: InFlightDelivery): boolean {
    return delivery.ackWith !== undefined && !this.#definition.topics.includes(delivery.message.topic);
  }

  // Another member of this consumer asked for the topic, a newer one most likely: it is left to those who know it.
  #retryElsewhere(held: InFlightDelivery): Promise<Fate> {
    const error = handledElsewhere(this.#definition.name, held.delivery.message.topic);
    return this.#settlement.retry(held, { delayMs: NOT_OURS_MS, charged: false, error });
  }

  #poison(held: InFlightDelivery): Promise<Fate> {
    this.#uncountedFailures.forget(held.id);
    return this.#settlement.bury(held, "poison", killsProcess(held.crashes));
  }
}
