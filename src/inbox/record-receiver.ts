import { SagaboxError } from "../errors/index.ts";
import type { Observer, TelemetryName } from "../telemetry/index.ts";
import { type Delivery, fromWire } from "../transport/index.ts";
import type { Attempt } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import { trackDelivery } from "./in-flight-delivery.ts";
import { DeliveryProcessor } from "./process-delivery.ts";
import { StatementCache } from "./receive-statement.ts";
import type { ConsumerDefinition } from "./registry.ts";
import { Settlement } from "./settlement.ts";

/** A message that a platform took from a broker and passed to this process. */
export interface DeliveredRecord {
  /** Identifies duplicates of a record that is not a message of sagabox or a CloudEvent. Others carry their own id. */
  readonly id?: string | undefined;
  readonly topic: string;
  readonly key?: string | null;
  /** The headers as the transport wrote them. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array;
  /** The only consumer that gets the record. Default: all consumers of its topic or type. */
  readonly consumer?: string | undefined;
  /** 1 for the first delivery. Default: counted in the memory of this process. */
  readonly attempt?: number | undefined;
}

/** `skipped`: there was nothing to do, because no handler is registered for the type or the handler ignored the message. */
export type RecordOutcome = "handled" | "duplicate" | "skipped" | "dead-lettered";

/** What one consumer made of a record. */
export interface HandledRecord {
  readonly consumer: string;
  readonly outcome: RecordOutcome;
}

/** Failed attempts that are remembered, for records that do not say how often they were delivered. */
const MAX_REMEMBERED = 10_000;

const outcomes: Partial<Record<TelemetryName, RecordOutcome>> = {
  "consumer.processed": "handled",
  "consumer.duplicate": "duplicate",
  "dead_letter.buried": "dead-lettered",
};

/** Handles single records through the inbox, for platforms that receive the messages themselves. */
export class RecordReceiver {
  readonly #engine: InboxEngine;
  readonly #stopping: AbortSignal;
  readonly #statements: StatementCache;
  readonly #attempts = new Set<Attempt>();
  readonly #ignoredTypes = new Set<string>();
  /** Failed attempts by consumer and message id. */
  readonly #failures = new Map<string, number>();

  constructor(engine: InboxEngine, stopping: AbortSignal) {
    this.#engine = engine;
    this.#stopping = stopping;
    this.#statements = new StatementCache(engine.sql.schema);
  }

  /**
   * Passes the record to its consumers, one after the other. Throws RECORD_NOT_HANDLED if a consumer failed and the record
   * must be delivered again; the consumers that have handled it then skip it. Throws HANDLER_MISSING if there is no consumer.
   */
  async handle(
    definitions: readonly ConsumerDefinition[],
    record: DeliveredRecord,
  ): Promise<readonly HandledRecord[]> {
    const { topic, key = null, headers = {}, body } = record;
    const received = fromWire({ topic, key, headers, body: Buffer.from(body as Uint8Array) });
    const consumers = findConsumers(definitions, record, received.message);
    if (consumers.length === 0) throw noConsumer(record, received.message.type);
    const results: HandledRecord[] = [];
    const failures: SagaboxError[] = [];
    for (const definition of consumers) {
      const result = await this.#receive(definition, record, received);
      if (result instanceof SagaboxError) failures.push(result);
      else results.push(result);
    }
    const [failure] = failures;
    if (failure !== undefined) throw failure;
    return results;
  }

  async #receive(
    definition: ConsumerDefinition,
    record: DeliveredRecord,
    { message, flaw }: ReturnType<typeof fromWire>,
  ): Promise<HandledRecord | SagaboxError> {
    const { name: consumer } = definition;
    const failureKey = `${consumer}\0${record.id ?? message.id}`;
    const attempt = record.attempt ?? (this.#failures.get(failureKey) ?? 0) + 1;
    let again: { readonly error: string; readonly countsAsAttempt: boolean } | undefined;
    const delivery: Delivery = {
      message,
      ...(flaw === undefined ? {} : { flaw }),
      attempt,
      orderKey: null,
      signal: this.#stopping,
      ack: () => Promise.resolve(),
      retry: async (options) => void (again = options),
      release: async () => void (again = { error: "the bus was stopped", countsAsAttempt: false }),
    };
    const watch = new OutcomeWatch(this.#engine.observer);
    const engine = { ...this.#engine, observer: watch };
    const tracked = trackDelivery(delivery, { definition, engine });
    const held = flaw === undefined || record.id === undefined ? tracked : { ...tracked, id: record.id };
    const settlement = new Settlement({
      engine,
      consumer,
      givenUp: this.#stopping,
      takeSuccessors: () => [],
    });
    const processor = new DeliveryProcessor({
      engine,
      definition,
      settlement,
      attempts: this.#attempts,
      statements: this.#statements,
      ignoredTypes: this.#ignoredTypes,
    });
    const result = await processor.process(held);
    if (result === "done") {
      this.#failures.delete(failureKey);
      return { consumer, outcome: watch.outcome };
    }
    if (again?.countsAsAttempt === true) this.#remember(failureKey, attempt);
    return notHandled(consumer, message, attempt, again?.error ?? "the bus was stopped");
  }

  #remember(key: string, attempt: number): void {
    this.#failures.delete(key);
    this.#failures.set(key, attempt);
    for (const oldest of this.#failures.keys()) {
      if (this.#failures.size <= MAX_REMEMBERED) return;
      this.#failures.delete(oldest);
    }
  }
}

/** Passes all events on, and keeps what they say about one delivery. */
class OutcomeWatch implements Observer {
  readonly #observer: Observer;
  #outcome: RecordOutcome = "skipped";

  constructor(observer: Observer) {
    this.#observer = observer;
  }

  get outcome(): RecordOutcome {
    return this.#outcome;
  }

  readonly emit: Observer["emit"] = (name, fields, context) => {
    this.#outcome = outcomes[name] ?? this.#outcome;
    this.#observer.emit(name, fields, context);
  };
}

function findConsumers(
  definitions: readonly ConsumerDefinition[],
  { consumer }: DeliveredRecord,
  { topic, type }: { readonly topic: string; readonly type: string },
): readonly ConsumerDefinition[] {
  if (consumer !== undefined) return definitions.filter(({ name }) => name === consumer);
  return definitions.filter(({ topics, handlers }) => topics.includes(topic) || handlers.has(type));
}

function noConsumer({ consumer, topic }: DeliveredRecord, type: string): SagaboxError {
  const wanted = consumer === undefined ? "No consumer" : `No consumer "${consumer}"`;
  return new SagaboxError(
    "HANDLER_MISSING",
    `${wanted} is registered for type "${type}" on topic "${topic}". Register its handler before bus.handle().`,
  );
}

function notHandled(
  consumer: string,
  { id, type }: { readonly id: string; readonly type: string },
  attempt: number,
  error: string,
): SagaboxError {
  return new SagaboxError(
    "RECORD_NOT_HANDLED",
    `Consumer "${consumer}" has not handled ${type} ${id} (attempt ${attempt}): ${error}. ` +
      "Nothing of this attempt was committed. Report the record as failed, so that it is delivered again.",
  );
}
