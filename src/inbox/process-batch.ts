import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { toFailure } from "../retry/index.ts";
import { silentSpan, spanFailure, type Span } from "../telemetry/index.ts";
import { prepareAnswer, encryptedReplyName } from "./answer.ts";
import { deliveryLost, type Attempt } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import type { Received } from "./handler.ts";
import { batchContext, handlerContext, runInContext } from "./handler-context.ts";
import type { InFlightDelivery } from "./in-flight-delivery.ts";
import type { StatementBatchSize } from "./statement-batch-size.ts";
import type { DeliveryProcessor, ProcessorParts } from "./process-delivery.ts";
import { idForDedupe, readMessage } from "./read-message.ts";
import { redact } from "./redact.ts";
import { receiveBatch, type BatchItem, type BatchOutcome } from "./receive-batch.ts";
import type { StatementCache } from "./receive-statement.ts";
import { receiveStatements } from "./receive-statements.ts";
import { asError } from "./receive-once.ts";
import type { ConsumerDefinition, Registration } from "./registry.ts";
import { respond } from "./respond.ts";
import type { Fate, Settlement } from "./settlement.ts";

interface Item extends BatchItem {
  readonly held: InFlightDelivery;
  readonly message: Received;
}

type Fates = Map<InFlightDelivery, Fate>;

/**
 * Several deliveries of one contract in one transaction. If that fails, they are redone one by one: statements by whoever
 * put them together, since they have nothing to do with each other, everything else here.
 */
export class BatchProcessor {
  readonly #engine: InboxEngine;
  readonly #definition: ConsumerDefinition;
  readonly #single: DeliveryProcessor;
  readonly #settlement: Settlement;
  readonly #attempts: Set<Attempt>;
  readonly #statements: StatementCache;
  readonly #batchSize: StatementBatchSize;
  /** Their handlers use savepoints, so they run one after the other. */
  readonly #withSavepoints = new WeakSet<Registration>();

  constructor(
    { engine, definition, settlement, attempts, statements }: ProcessorParts,
    { single, lotSize }: { single: DeliveryProcessor; lotSize: StatementBatchSize },
  ) {
    this.#engine = engine;
    this.#definition = definition;
    this.#single = single;
    this.#settlement = settlement;
    this.#attempts = attempts;
    this.#statements = statements;
    this.#batchSize = lotSize;
  }

  /** Resolves with those that are still to be done. */
  async process(
    lot: readonly InFlightDelivery[],
    registration: Registration,
  ): Promise<readonly InFlightDelivery[]> {
    const { spans } = this.#engine;
    if (!spans.enabled) return this.#process(lot, registration);
    const messages = lot.map(({ delivery }) => delivery.message);
    const span = spans.processBatch(messages, registration.consumer);
    try {
      return await span.run(() => this.#process(lot, registration));
    } finally {
      span.end();
    }
  }

  async #process(
    lot: readonly InFlightDelivery[],
    registration: Registration,
  ): Promise<readonly InFlightDelivery[]> {
    const fates: Fates = new Map();
    const items = await this.#read(lot, registration, fates);
    if (items.length === 0) return [];
    const begun = new Set<Item>();
    try {
      await this.#processTogether(items, registration, { fates, begun });
    } catch (thrown) {
      const error = asError(thrown);
      if (isSagaboxError(error, "TRANSACTION_COMMITTED")) await this.#buryAll(begun, error, fates);
      const stopped = isSagaboxError(error, "BUS_STOPPED");
      if (registration.work.kind === "statement" && !stopped) return lot.filter((held) => !fates.has(held));
      const { classify } = registration.settings;
      const { kind, mayNeverPass } = toFailure(error, classify);
      const blameless = kind === "infrastructure" && mayNeverPass !== true; // else one of them may be to blame
      await (blameless ? this.#retryLater(items, error, fates) : this.#oneByOne(items, fates));
    }
    return [];
  }

  async #read(
    lot: readonly InFlightDelivery[],
    { contract, work }: Registration,
    fates: Fates,
  ): Promise<Item[]> {
    const items: Item[] = [];
    const waiting = new Set<string | null>();
    for (const held of lot) {
      const { message, orderKey } = held.delivery;
      // A statement finds out by itself whether it is a duplicate, so what became of it is known only afterwards.
      const ackWith = work.kind === "statement" ? undefined : held.delivery.ackWith;
      if (held.delivery.signal.aborted) fates.set(held, "lost");
      else if (orderKey !== null && waiting.has(orderKey)) {
        fates.set(held, "again");
        await this.#settlement.release(held);
      } else {
        try {
          const { topic, type, expiresAt } = message;
          const id = idForDedupe(held.id ?? message.id);
          const payload = this.#definition.settings.storePayload ? message.data : null;
          const reading = readMessage(this.#engine, contract, held);
          const read = reading instanceof Promise ? await reading : reading;
          items.push({ held, message: read, id, topic, type, payload, expiresAt, ackWith });
        } catch (thrown) {
          const later = lot.slice(lot.indexOf(held) + 1);
          const behind = later.filter(({ delivery }) => orderKey !== null && delivery.orderKey === orderKey);
          const fate = await this.#single.fail(held, asError(thrown), behind);
          fates.set(held, fate);
          if (fate === "again") waiting.add(orderKey); // its successors come back behind it
        }
      }
    }
    return items;
  }

  async #processTogether(
    items: readonly Item[],
    registration: Registration,
    { fates, begun }: { readonly fates: Fates; readonly begun: Set<Item> },
  ): Promise<void> {
    const { processed, duplicates, expired, durationMs } = await this.#receive(items, registration, begun);
    const settled = [true, false].map(async (ackedIn) => {
      const some = processed.filter(({ ackWith }) => (ackWith !== undefined) === ackedIn);
      const ends = await this.#single.settleAll(
        some.map(({ held }) => held),
        durationMs,
        ackedIn,
      );
      for (const [index, { held }] of some.entries()) fates.set(held, ends[index] ?? "done");
    });
    await Promise.all([
      ...settled,
      ...duplicates.map(async ({ held }) => {
        fates.set(held, await this.#single.settle(held, { kind: "duplicate" }, false));
      }),
      ...expired.map(async ({ held }) => {
        fates.set(held, await this.#single.settle(held, { kind: "expired" }, false));
      }),
    ]);
  }

  #receive(
    items: readonly Item[],
    registration: Registration,
    begun: Set<Item>,
  ): Promise<BatchOutcome<Item>> {
    const { consumer, settings, work } = registration;
    const receipt = { consumer, items, deadlineMs: settings.deadlineMs, among: this.#attempts };
    if (work.kind === "statement") {
      const lot = { ...receipt, effectOf: ({ message }: Item) => work.build(message), size: this.#batchSize };
      return receiveStatements(this.#engine, this.#statements, lot);
    }
    return receiveBatch(this.#engine, receipt, async (fresh, attempt) => {
      for (const item of fresh) begun.add(item);
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
    await within(span, secrets, () =>
      runInContext(first.message, first.id, () => work.handle(messages, batchContext(consumer, attempt))),
    );
    for (const { message, id } of fresh) {
      if (message.kind === "command") await respond(attempt.scope, message, id, undefined);
    }
  }

  // Keys side by side on one connection, so that their statements travel together; one key in series. All have
  // ended before the transaction does, or a redo would meet handlers that still run. A rollback to a savepoint would take
  // back what the handlers of other keys wrote since, so the first savepoint fails the batch, which is redone one by one.
  async #runEach(
    fresh: readonly Item[],
    attempt: Attempt,
    registration: Registration,
  ): Promise<readonly unknown[]> {
    const results = new Map<Item, unknown>();
    const lines = this.#withSavepoints.has(registration) ? [fresh] : groupByKey(fresh);
    let refused: Error | undefined;
    if (lines.length > 1) {
      attempt.tx.beforeSavepoint = () => {
        this.#withSavepoints.add(registration);
        return Promise.reject((refused ??= savepointRefused()));
      };
    }
    const ends = await Promise.allSettled(
      lines.map(async (line) => {
        for (const item of line) results.set(item, await this.#handle(item, attempt, registration));
      }),
    );
    const failed = ends.find((end) => end.status === "rejected");
    if (refused !== undefined) throw refused; // also if the handler caught it
    if (failed !== undefined) throw failed.reason;
    return fresh.map((item) => results.get(item));
  }

  async #handle(item: Item, attempt: Attempt, { work, consumer, contract }: Registration): Promise<unknown> {
    if (work.kind !== "each") return undefined;
    const { message, id, held } = item;
    const context = handlerContext(consumer, id, held.delivery.attempt, attempt);
    const span = this.#engine.spans.process(message, { consumer, attempt: held.delivery.attempt });
    return within(span, held.secrets, async () => {
      const said = await runInContext(message, id, () => work.handle(message, context));
      const answer = await prepareAnswer(this.#engine, contract, message, said, attempt);
      await respond(attempt.scope, message, id, answer, encryptedReplyName(contract));
      return answer;
    });
  }

  // Their dedupe rows are durable, so each would be taken for a duplicate. Which of their effects are durable is unknown.
  async #buryAll(begun: ReadonlySet<Item>, error: Error, fates: Fates): Promise<void> {
    for (const { held } of begun) fates.set(held, await this.#single.fail(held, error));
  }

  async #oneByOne(items: readonly Item[], fates: Fates): Promise<void> {
    for (const line of groupByKey(items)) await this.#inSeries(line, fates);
  }

  async #inSeries(line: readonly Item[], fates: Fates): Promise<void> {
    for (const { held } of line) {
      if (fates.has(held)) continue;
      const fate = await this.#single.process(held, listRemaining(line, fates, held));
      fates.set(held, fate);
      if (fate !== "done") await this.#giveBackRest(line, fates);
    }
  }

  /** The database or the broker failed: the head of each key comes back later, the others behind it. */
  async #retryLater(items: readonly Item[], error: Error, fates: Fates): Promise<void> {
    for (const line of groupByKey(items)) {
      const [head] = line;
      if (head === undefined) continue;
      fates.set(head.held, await this.#single.fail(head.held, error, listRemaining(line, fates, head.held)));
      await this.#giveBackRest(line, fates);
    }
  }

  async #giveBackRest(line: readonly Item[], fates: Fates): Promise<void> {
    const rest = line.filter(({ held }) => !fates.has(held));
    for (const { held } of rest) fates.set(held, "again");
    await Promise.all(rest.map(({ held }) => this.#settlement.release(held)));
  }
}

async function within<T>(
  span: Span,
  secrets: readonly string[] | undefined,
  work: () => T | Promise<T>,
): Promise<T> {
  try {
    return await span.run(work);
  } catch (thrown) {
    if (span !== silentSpan) span.fail(spanFailure(redact(asError(thrown), secrets)));
    throw thrown;
  } finally {
    span.end();
  }
}

function savepointRefused(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_CLOSED",
    "A savepoint was refused: the handlers of other keys write in the same transaction. The batch is redone one by one.",
  );
}

function listRemaining(
  line: readonly Item[],
  fates: Fates,
  head: InFlightDelivery,
): readonly InFlightDelivery[] {
  return line.map(({ held }) => held).filter((held) => held !== head && !fates.has(held));
}

/** Messages of one key together, in order; one without a key by itself. */
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
