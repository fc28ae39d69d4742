import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { toFailure } from "../retry/index.ts";
import { silentSpan, type Span, spanFailure } from "../telemetry/index.ts";
import { type Attempt, deliveryLost } from "./attempt.ts";
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
import type { DeliveryProcessor, ProcessorParts } from "./process-delivery.ts";
import { idForDedupe, readMessage } from "./read-message.ts";
import { type BatchItem, type BatchOutcome, receiveBatch } from "./receive-batch.ts";
import { toHandlerError } from "./receive-once.ts";
import { receiveStatements, type StatementCache, type StatementEffect } from "./receive-statement.ts";
import { redact } from "./redact.ts";
import type { ConsumerDefinition, Registration } from "./registry.ts";
import type { SettleResult, Settlement } from "./settlement.ts";
import type { StatementBatchSize } from "./statement-batch-size.ts";

interface Item extends BatchItem {
  readonly held: InFlightDelivery;
  readonly message: Received;
}

type SettleResults = Map<InFlightDelivery, SettleResult>;

/**
 * Handles several deliveries of one contract in one transaction. If that fails, each is retried in its own transaction:
 * statements by the consumer, which may run them concurrently, all others here.
 */
export class BatchProcessor {
  readonly #engine: InboxEngine;
  readonly #definition: ConsumerDefinition;
  readonly #single: DeliveryProcessor;
  readonly #settlement: Settlement;
  readonly #attempts: Set<Attempt>;
  readonly #statements: StatementCache;
  readonly #batchSize: StatementBatchSize;
  /** Handlers that use savepoints. Their batches run one message after the other. */
  readonly #withSavepoints = new WeakSet<Registration>();

  constructor(
    { engine, definition, settlement, attempts, statements }: ProcessorParts,
    { single, batchSize }: { single: DeliveryProcessor; batchSize: StatementBatchSize },
  ) {
    this.#engine = engine;
    this.#definition = definition;
    this.#single = single;
    this.#settlement = settlement;
    this.#attempts = attempts;
    this.#statements = statements;
    this.#batchSize = batchSize;
  }

  /** Handles and settles a batch. Resolves with the deliveries that the caller must process one by one. */
  async process(
    batch: readonly InFlightDelivery[],
    registration: Registration,
  ): Promise<readonly InFlightDelivery[]> {
    const { spans } = this.#engine;
    if (!spans.enabled) return this.#process(batch, registration);
    const messages = batch.map(({ delivery }) => delivery.message);
    const span = spans.processBatch(messages, registration.consumer);
    try {
      return await span.run(() => this.#process(batch, registration));
    } finally {
      span.end();
    }
  }

  async #process(
    batch: readonly InFlightDelivery[],
    registration: Registration,
  ): Promise<readonly InFlightDelivery[]> {
    const results: SettleResults = new Map();
    const items = await this.#read(batch, registration, results);
    if (items.length === 0) return [];
    const started = new Set<Item>();
    try {
      await this.#processTogether(items, registration, { results, started });
    } catch (thrown) {
      const error = toHandlerError(thrown);
      if (isSagaboxError(error, "TRANSACTION_COMMITTED")) await this.#deadLetterAll(started, error, results);
      const stopped = isSagaboxError(error, "BUS_STOPPED");
      if (registration.work.kind === "statement" && !stopped)
        return batch.filter((held) => !results.has(held));
      const { classify } = registration.settings;
      const { kind, mayNeverPass } = toFailure(error, classify);
      // Only a failure of the infrastructure has no cause in one of the messages.
      const isOutage = kind === "infrastructure" && mayNeverPass !== true;
      await (isOutage ? this.#retryLater(items, error, results) : this.#processOneByOne(items, results));
    }
    return [];
  }

  async #read(
    batch: readonly InFlightDelivery[],
    { contract, work }: Registration,
    results: SettleResults,
  ): Promise<Item[]> {
    const items: Item[] = [];
    const blockedKeys = new Set<string | null>();
    for (const held of batch) {
      const { message, orderKey } = held.delivery;
      // Whether a statement's message is a duplicate is known only after COMMIT, so it is acknowledged afterwards.
      const ackWith = work.kind === "statement" ? undefined : held.delivery.ackWith;
      if (held.delivery.signal.aborted) results.set(held, "lost");
      else if (orderKey !== null && blockedKeys.has(orderKey)) {
        results.set(held, "again");
        await this.#settlement.release(held);
      } else {
        try {
          const { topic, type, expiresAt } = message;
          const id = idForDedupe(held.id ?? message.id);
          const payload = this.#definition.settings.storePayload ? message.data : null;
          const reading = readMessage(this.#engine, contract, held);
          const received = reading instanceof Promise ? await reading : reading;
          items.push({ held, message: received, id, topic, type, payload, expiresAt, ackWith });
        } catch (thrown) {
          const later = batch.slice(batch.indexOf(held) + 1);
          const behind = later.filter(({ delivery }) => orderKey !== null && delivery.orderKey === orderKey);
          const result = await this.#single.fail(held, toHandlerError(thrown), behind);
          results.set(held, result);
          if (result === "again") blockedKeys.add(orderKey); // later messages of the key must wait for it
        }
      }
    }
    return items;
  }

  async #processTogether(
    items: readonly Item[],
    registration: Registration,
    { results, started }: { readonly results: SettleResults; readonly started: Set<Item> },
  ): Promise<void> {
    const { processed, duplicates, expired, durationMs } = await this.#receive(items, registration, started);
    const settling = [true, false].map(async (ackedIn) => {
      const group = processed.filter(({ ackWith }) => (ackWith !== undefined) === ackedIn);
      const settled = await this.#single.settleAll(
        group.map(({ held }) => held),
        durationMs,
        ackedIn,
      );
      for (const [index, { held }] of group.entries()) results.set(held, settled[index] ?? "done");
    });
    await Promise.all([
      ...settling,
      ...duplicates.map(async ({ held }) => {
        results.set(held, await this.#single.settle(held, { kind: "duplicate" }, false));
      }),
      ...expired.map(async ({ held }) => {
        results.set(held, await this.#single.settle(held, { kind: "expired" }, false));
      }),
    ]);
  }

  #receive(
    items: readonly Item[],
    registration: Registration,
    started: Set<Item>,
  ): Promise<BatchOutcome<Item>> {
    const { consumer, settings, work, internal } = registration;
    const receipt = {
      consumer,
      items,
      forHandler: !internal,
      deadlineMs: settings.deadlineMs,
      openAttempts: this.#attempts,
    };
    if (work.kind === "statement") {
      const buildEffect = ({ message }: Item): StatementEffect => work.build(message);
      const batch = { ...receipt, buildEffect, size: this.#batchSize };
      return receiveStatements(this.#engine, this.#statements, batch);
    }
    return receiveBatch(this.#engine, receipt, async (fresh, attempt) => {
      for (const item of fresh) started.add(item);
      const bulk = registration.work.kind === "bulk";
      const results = await (bulk
        ? this.#runBulk(fresh, attempt, registration)
        : this.#runEach(fresh, attempt, registration));
      if (fresh.some(({ held }) => held.delivery.signal.aborted)) throw deliveryLost();
      return results;
    });
  }

  async #runBulk(fresh: readonly Item[], attempt: Attempt, { work, consumer }: Registration): Promise<void> {
    const first = fresh[0];
    if (work.kind !== "bulk" || first === undefined) return;
    const messages = fresh.map((item) => item.message);
    const span = this.#engine.spans.processBatch(messages, consumer, first.message.traceparent);
    const secrets = fresh.flatMap(({ held }) => held.secrets ?? []);
    await runInSpan(span, secrets, () =>
      runInContext(first.message, first.id, () => work.handle(messages, batchContext(consumer, attempt))),
    );
    for (const { message, id } of fresh) {
      if (message.kind === "command") await respond(attempt.scope, message, id, undefined);
    }
  }

  // Different keys run concurrently on one connection, so that their statements are pipelined; one key runs in order. The
  // transaction ends after all handlers, so that a retry does not meet handlers that still run. A rollback to a savepoint
  // would undo writes of other keys, so the first savepoint fails the batch, and its messages are retried one by one.
  async #runEach(
    fresh: readonly Item[],
    attempt: Attempt,
    registration: Registration,
  ): Promise<readonly unknown[]> {
    const results = new Map<Item, unknown>();
    // A library may use savepoints that are not seen here.
    const isSerial = attempt.tx.native !== undefined || this.#withSavepoints.has(registration);
    const lines = isSerial ? [fresh] : groupByKey(fresh);
    let refusal: Error | undefined;
    if (lines.length > 1) {
      attempt.tx.beforeSavepoint = () => {
        this.#withSavepoints.add(registration);
        return Promise.reject((refusal ??= savepointRefused()));
      };
    }
    const ends = await Promise.allSettled(
      lines.map(async (line) => {
        for (const item of line) results.set(item, await this.#handle(item, attempt, registration));
      }),
    );
    const failed = ends.find((end) => end.status === "rejected");
    if (refusal !== undefined) throw refusal; // also if the handler caught it
    if (failed !== undefined) throw failed.reason;
    return fresh.map((item) => results.get(item));
  }

  async #handle(item: Item, attempt: Attempt, { work, consumer, contract }: Registration): Promise<unknown> {
    if (work.kind !== "each") return undefined;
    const { message, id, held } = item;
    const context = handlerContext(consumer, id, held.delivery.attempt, attempt);
    const span = this.#engine.spans.process(message, { consumer, attempt: held.delivery.attempt });
    return runInSpan(span, held.secrets, async () => {
      const returned = await runInContext(message, id, () => work.handle(message, context));
      const reply = await prepareReply(this.#engine, contract, message, returned, attempt);
      await respond(attempt.scope, message, id, reply, encryptedReplyName(contract));
      return reply;
    });
  }

  // A handler committed the transaction early. The dedupe rows are durable, so a retry would be a duplicate, but it is
  // unknown which effects are. An operator has to decide.
  async #deadLetterAll(started: ReadonlySet<Item>, error: Error, results: SettleResults): Promise<void> {
    for (const { held } of started) results.set(held, await this.#single.fail(held, error));
  }

  async #processOneByOne(items: readonly Item[], results: SettleResults): Promise<void> {
    for (const line of groupByKey(items)) await this.#processInOrder(line, results);
  }

  async #processInOrder(line: readonly Item[], results: SettleResults): Promise<void> {
    for (const { held } of line) {
      if (results.has(held)) continue;
      const result = await this.#single.process(held, listRemaining(line, results, held));
      results.set(held, result);
      if (result !== "done") await this.#releaseRest(line, results);
    }
  }

  /** Retries the first message of each key after an outage, and releases the others, so that they come back after it. */
  async #retryLater(items: readonly Item[], error: Error, results: SettleResults): Promise<void> {
    for (const line of groupByKey(items)) {
      const [head] = line;
      if (head === undefined) continue;
      results.set(
        head.held,
        await this.#single.fail(head.held, error, listRemaining(line, results, head.held)),
      );
      await this.#releaseRest(line, results);
    }
  }

  async #releaseRest(line: readonly Item[], results: SettleResults): Promise<void> {
    const rest = line.filter(({ held }) => !results.has(held));
    for (const { held } of rest) results.set(held, "again");
    await Promise.all(rest.map(({ held }) => this.#settlement.release(held)));
  }
}

async function runInSpan<T>(
  span: Span,
  secrets: readonly string[] | undefined,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await span.run(work);
  } catch (thrown) {
    if (span !== silentSpan) span.fail(spanFailure(redact(toHandlerError(thrown), secrets)));
    throw thrown;
  } finally {
    span.end();
  }
}

function savepointRefused(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_CLOSED",
    "A savepoint was refused, because handlers of other keys write in the same transaction. The messages are retried one by one.",
  );
}

function listRemaining(
  line: readonly Item[],
  results: SettleResults,
  head: InFlightDelivery,
): readonly InFlightDelivery[] {
  return line.map(({ held }) => held).filter((held) => held !== head && !results.has(held));
}

/** Groups messages by key, in order. Each message without a key is a group of its own. */
function groupByKey(items: readonly Item[]): readonly (readonly Item[])[] {
  const lines = new Map<unknown, Item[]>();
  for (const item of items) {
    const key = item.held.delivery.orderKey ?? item;
    const line = lines.get(key);
    if (line === undefined) lines.set(key, [item]);
    else line.push(item);
  }
  return [...lines.values()];
}
