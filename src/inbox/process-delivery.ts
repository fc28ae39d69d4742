import { isSagaboxError, readVerdict, SagaboxError } from "../errors/index.ts";
import { type Json, parseIdTime, readReplyTopic } from "../message/index.ts";
import { decideRetry, type FailureKind, toFailure } from "../retry/index.ts";
import { random } from "../runtime/index.ts";
import { type CommitStatement, toArrayLiteral } from "../storage/index.ts";
import { spanFailure } from "../telemetry/index.ts";
import { encryptedReplyName, prepareAnswer } from "./answer.ts";
import { ackStatement, attempt, type Attempt } from "./attempt.ts";
import { claimCommands, findEffect } from "./claim-commands.ts";
import type { InboxEngine } from "./engine.ts";
import { batchContext, handlerContext, runInContext } from "./handler-context.ts";
import type { Received } from "./handler.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";
import { idForDedupe, readMessage } from "./read-message.ts";
import { asError, carryOut, type Outcome, recall, type Receipt, receiveOnce } from "./receive-once.ts";
import { receiveStatement, type StatementCache } from "./receive-statement.ts";
import { redact } from "./redact.ts";
import { type Earlier, earlierCommands, type EarlierCommands } from "./references.ts";
import type { ConsumerDefinition, Registration } from "./registry.ts";
import { respond } from "./respond.ts";
import { type Fate, type Settlement, telemetryContext } from "./settlement.ts";

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
    for (const { delivery } of all) delivery.confirmAck?.();
    return all.map(() => "done");
  }

  #acknowledge(held: InFlightDelivery, ackedIn: boolean): Promise<Fate> {
    if (!ackedIn) return this.#settlement.ack(held);
    held.delivery.confirmAck?.();
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

function messageExpired(expiresAt: string | null): SagaboxError {
  return new SagaboxError("MESSAGE_EXPIRED", `The message was good until ${expiresAt ?? "an unknown time"}.`);
}

function killsProcess(crashes: number | undefined): SagaboxError {
  return new SagaboxError(
    "MESSAGE_KILLS_PROCESS",
    `The process died ${crashes} times while it handled nothing but this message.`,
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
    `This process has no handler of consumer "${consumer}" for topic "${topic}", but another one has. ` +
      "It waits for that one; register the same handlers in all processes of a consumer.",
  );
}

/** More are not counted: those that failed longest ago start again with the shortest wait. */
const MAX_TRACKED = 10_000;

/**
 * How often in a row each delivery of a consumer failed without being charged, so that its waits grow although its
 * attempts do not. Kept in this process alone: whoever takes a delivery over starts anew, and so does the next life.
 */
export class UncountedFailures {
  readonly #inARow = new Map<string, number>();
  readonly #max: number;

  constructor(most = MAX_TRACKED) {
    this.#max = most;
  }

  /** Counts a failure, and tells how many there were right before it. One that is charged ends the row. */
  count(id: string, kind: FailureKind): number {
    const before = this.#inARow.get(id) ?? 0;
    this.#inARow.delete(id); // so that it is the youngest
    if (kind !== "infrastructure") return before;
    if (this.#inARow.size >= this.#max) this.#forgetOldest();
    this.#inARow.set(id, before + 1);
    return before;
  }

  /** Hardly any delivery is known here, so this must cost nothing. */
  forget(id: string | undefined): void {
    if (this.#inARow.size > 0 && id !== undefined) this.#inARow.delete(id);
  }

  #forgetOldest(): void {
    for (const oldest of this.#inARow.keys()) {
      this.#inARow.delete(oldest);
      return;
    }
  }
}

/** nothing_to_undo: it was not, and never will be, carried out · already_undone · superseded: it was done before. */
type SkipReason = "nothing_to_undo" | "already_undone" | "superseded";

/** Skipped: settled and answered as done, without its handler. */
type ReferringOutcome<R> = Outcome<R> | { readonly kind: "skipped"; readonly reason: SkipReason };

interface Skip {
  readonly reason: SkipReason;
  readonly answer: Json | undefined;
  /** What is noted of the command itself. */
  readonly note: CommitStatement;
}

interface ReferringWork<R> {
  readonly earlier: EarlierCommands;
  readonly handle: (attempt: Attempt) => R | Promise<R>;
  /** Answers instead of the handler. */
  readonly answer: (attempt: Attempt, answer: Json | undefined) => Promise<void>;
}

/**
 * Like `receiveOnce`, for a command that takes back or stands for earlier ones. They are claimed first, so that of an
 * undo and its do, or of two copies of a do, one waits for the other; what they find afterwards decides whether the
 * handler runs. All of it is one transaction.
 */
export function receiveReferring<R>(
  engine: InboxEngine,
  receipt: Receipt,
  { earlier, handle, answer }: ReferringWork<R>,
): Promise<ReferringOutcome<Awaited<R>>> {
  return attempt(engine, receipt, async (current) => {
    const { undoes, supersedes } = earlier;
    const claimed = await claimCommands(current.tx, engine, receipt, [undoes, supersedes]);
    if (!claimed) return recall(current, engine, receipt);
    const skip =
      (await findSuperseding(current, engine, receipt, supersedes)) ??
      (await findSkip(current, engine, receipt, undoes));
    if (skip === undefined) return carryOut(current, engine, receipt, handle);
    await answer(current, skip.answer);
    await current.commit([
      skip.note,
      ...(receipt.onSuccess ?? []),
      ...(receipt.ackWith ? [ackStatement(receipt.ackWith)] : []),
    ]);
    return { kind: "skipped", reason: skip.reason };
  });
}

async function findSuperseding(
  { tx }: Attempt,
  engine: InboxEngine,
  { consumer, id }: Receipt,
  supersedes: Earlier | undefined,
): Promise<Skip | undefined> {
  if (supersedes === undefined) return undefined;
  const effect = await findEffect(tx, engine, consumer, supersedes);
  if (effect === undefined) return undefined;
  const note = { statement: engine.sql.adopt, params: [consumer, id, effect.id, effect.stored] };
  return { reason: "superseded", answer: effect.result, note };
}

/** No dedupe row is forgotten earlier than this. */
const REMEMBERED_MS = 7 * 86_400_000;

// Of a command that old nobody can say that it was not carried out: its undo must look for itself.
function mayBeForgotten(ids: readonly string[], nowMs: number): boolean {
  return ids.some((id) => (parseIdTime(id) ?? nowMs) < nowMs - REMEMBERED_MS);
}

// The update is what two undos of one command meet at: the second finds it taken back.
async function findSkip(
  { tx }: Attempt,
  { sql, clock }: InboxEngine,
  { consumer, id }: Receipt,
  undoes: Earlier | undefined,
): Promise<Skip | undefined> {
  if (undoes === undefined) return undefined;
  const ids = toArrayLiteral(undoes.ids);
  if ((await tx.run(sql.takeBack, [consumer, ids, id])).rowCount > 0) return undefined;
  const { rowCount: done } = await tx.run(sql.carriedOut, [consumer, ids]);
  if (done === 0 && mayBeForgotten(undoes.ids, clock.wallMs())) return undefined;
  const note = { statement: sql.withoutEffect, params: [consumer, id] };
  return { reason: done > 0 ? "already_undone" : "nothing_to_undo", answer: undefined, note };
}
