import { errorText } from "../errors/index.ts";
import { type Message, streamFor } from "../message/index.ts";
import { retryWithBackoff } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import {
  addParkedLags,
  type BrokerTopology,
  type Capabilities,
  completeLags,
  type Consumption,
  type DeadLetterNote,
  type Delivery,
  type Lag,
  type PlannedGroup,
  type PublishOptions,
  type PublishOutcome,
  type RetryOptions,
  type Subscription,
  type Transport,
} from "../transport/index.ts";
import type { ParkedKeys, ParkedMessage, PostgresTransport } from "../transports/postgres/index.ts";

/**
 * A broker whose keyed retries and replayed dead letters wait in PostgreSQL. Everything else goes to the
 * broker.
 */
export class ParkingTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities;
  readonly #broker: Transport;
  readonly #tables: PostgresTransport;
  readonly #observer: Observer;

  constructor(broker: Transport, tables: PostgresTransport, observer: Observer) {
    this.name = broker.name;
    this.capabilities = { ...broker.capabilities, ordersRetries: true };
    this.#broker = broker;
    this.#tables = tables;
    this.#observer = observer;
  }

  async open(): Promise<void> {
    await this.#tables.open();
    await this.#broker.open();
  }

  publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    return this.#broker.publish(batch, options);
  }

  depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return this.#broker.depths?.(topics) ?? Promise.resolve(new Map());
  }

  async lags(groups: readonly PlannedGroup[]): Promise<readonly Lag[]> {
    const [broker = [], parked] = await Promise.all([this.#broker.lags?.(groups), this.#tables.lags(groups)]);
    return addParkedLags(completeLags(groups, broker), parked);
  }

  declares(groups: readonly PlannedGroup[]): BrokerTopology {
    return this.#broker.declares?.(groups) ?? { objects: [], permissions: [] };
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    const { group, ordered } = subscription;
    const gate = ordered
      ? new KeyGate({
          parkedKeys: await this.#tables.openParkedKeys(group),
          group,
          observer: this.#observer,
          receive,
        })
      : undefined;
    let fresh: Consumption | undefined = undefined;
    const copy = (message: Message, note: DeadLetterNote): Promise<void> => this.#copy(fresh, message, note);
    // Retries of an unordered group wait at the broker; its replayed dead letters still come from the tables.
    const parked = await this.#tables.subscribe({ ...subscription, topics: [] }, (delivery) =>
      receive(new ParkedDelivery(delivery, copy)),
    );
    const consumption = await this.#broker
      .subscribe(subscription, (delivery) => (gate === undefined ? receive(delivery) : gate.admit(delivery)))
      .catch(async (error: unknown) => {
        await parked.close();
        throw error;
      });
    fresh = consumption;
    const closing = (): void => {
      if (gate !== undefined) gate.closing = true;
    };
    return {
      pause: async () => {
        closing();
        await Promise.all([consumption.pause(), parked.pause()]);
      },
      close: async () => {
        closing();
        await gate?.idle();
        await consumption.close();
        await parked.close();
      },
      health: () => (consumption.health().ok ? parked.health() : consumption.health()),
    };
  }

  // The dead letter is already stored. An unreachable broker must not block the group.
  async #copy(fresh: Consumption | undefined, message: Message, note: DeadLetterNote): Promise<void> {
    try {
      await fresh?.deadLetter?.(message, note);
    } catch (error) {
      this.#observer.emit("transport.unreachable", {
        transport: this.name,
        doing: `copying dead letter ${message.id} to the broker`,
        error: errorText(error),
        retryInMs: 0,
      });
    }
  }

  async close(): Promise<void> {
    await this.#broker.close();
    await this.#tables.close();
  }
}

/** A delivery of a parked message. A dead letter is copied to the broker as well. */
class ParkedDelivery implements Delivery {
  readonly #inner: Delivery;
  readonly deadLetter: (note: DeadLetterNote) => Promise<void>;

  constructor(inner: Delivery, copy: (message: Message, note: DeadLetterNote) => Promise<void>) {
    this.#inner = inner;
    this.deadLetter = (note) => copy(inner.message, note);
  }

  get message(): Message {
    return this.#inner.message;
  }

  get attempt(): number {
    return this.#inner.attempt;
  }

  get orderKey(): string | null {
    return this.#inner.orderKey;
  }

  get signal(): AbortSignal {
    return this.#inner.signal;
  }

  get ackWith(): NonNullable<Delivery["ackWith"]> {
    if (this.#inner.ackWith === undefined)
      throw new Error("parked messages must be in the consumer's database");
    return this.#inner.ackWith;
  }

  readonly confirmAck = (): void => this.#inner.confirmAck?.();

  ack(): Promise<void> {
    return this.#inner.ack();
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#inner.retry(options);
  }

  release(): Promise<void> {
    return this.#inner.release();
  }
}

interface KeyGateOptions {
  readonly parkedKeys: ParkedKeys;
  readonly group: string;
  readonly observer: Observer;
  readonly receive: (delivery: Delivery) => void;
}

/**
 * Stands between the broker's deliveries and the consumer. A keyed message is handed out only when no message
 * of its key is parked. A message that fails is parked, and the later messages of its key follow in order.
 */
export class KeyGate {
  readonly #options: KeyGateOptions;
  readonly #keys = new Map<string, KeyState>();
  readonly #asking = new Set<string>();
  /** One write per key at a time, because the order of the writes is the order of the parked messages. */
  readonly #writes = new Map<string, Promise<void>>();
  #look: Promise<void> | undefined;
  closing = false;

  constructor(options: KeyGateOptions) {
    this.#options = options;
  }

  admit(delivery: Delivery): void {
    // The delivery stays unsettled; closing returns it to the broker.
    if (this.closing) return;
    const { key, topic } = delivery.message;
    if (delivery.orderKey === null || key === null || delivery.flaw !== undefined) {
      return this.#options.receive(delivery);
    }
    const stream = streamFor(topic, key);
    const state = this.#stateFor(stream, topic, key);
    const route = chooseRoute(state);
    if (route === "hand out") return this.#handOut(state, delivery);
    state.waiting.push(delivery);
    if (route === "wait") return this.#flush(stream, state);
    this.#asking.add(stream);
    this.#look ??= this.#ask();
  }

  /** Parks a delivery that failed in the handler. Later deliveries of its key are parked behind it. */
  async park(delivery: GatedDelivery, retry: RetryOptions | undefined): Promise<void> {
    const { topic, key } = delivery.message;
    const stream = streamFor(topic, key ?? "");
    const state = this.#stateFor(stream, topic, key ?? "");
    state.parking = true;
    await this.#write(stream, [delivery.inner], retry);
  }

  onSettled(delivery: GatedDelivery): void {
    const { topic, key } = delivery.message;
    const stream = streamFor(topic, key ?? "");
    const state = this.#keys.get(stream);
    if (state === undefined) return;
    state.open.delete(delivery);
    this.#flush(stream, state);
  }

  /**
   * Waits until all parking writes are done. They must be stored before the broker gives the key to another
   * worker.
   */
  async idle(): Promise<void> {
    await this.#look;
    while (this.#writes.size > 0) await Promise.allSettled(this.#writes.values());
  }

  #handOut(state: KeyState, delivery: Delivery): void {
    const gated = new GatedDelivery(delivery, this);
    state.open.add(gated);
    delivery.signal.addEventListener("abort", () => this.onSettled(gated), { once: true });
    this.#options.receive(gated);
  }

  /** Asks with one statement about all keys that arrived during the previous query. */
  async #ask(): Promise<void> {
    while (this.#asking.size > 0 && !this.closing) {
      const asked = new Map(
        [...this.#asking].flatMap((stream) => {
          const state = this.#keys.get(stream);
          return state === undefined ? [] : [[stream, state] as const];
        }),
      );
      this.#asking.clear();
      const occupied = await this.#retryUntilClosed("looking for parked messages", () =>
        this.#options.parkedKeys.occupied([...asked.values()]),
      );
      if (occupied === undefined || this.closing) break;
      for (const [stream, state] of asked) this.#applyAnswer(stream, state, occupied.has(stream));
    }
    // Cleared here, before the promise settles: a delivery that arrives in between must start a new query.
    this.#look = undefined;
  }

  // An answer applies only to the state it was asked for. Since then all of its messages may have been
  // parked, and later arrivals need an answer of their own.
  #applyAnswer(stream: string, state: KeyState, occupied: boolean): void {
    if (this.#keys.get(stream) !== state) return;
    if (occupied) state.parking = true;
    if (state.parking) return this.#flush(stream, state);
    for (const delivery of state.waiting.splice(0)) {
      if (!delivery.signal.aborted) this.#handOut(state, delivery);
    }
  }

  #flush(stream: string, state: KeyState): void {
    if (canPark(state)) {
      const moved = state.waiting.splice(0);
      void this.#write(stream, moved, undefined).then(() => this.#flush(stream, state));
    } else if (isEmpty(state) && !this.#writes.has(stream)) {
      this.#keys.delete(stream);
    }
  }

  #write(stream: string, deliveries: readonly Delivery[], retry: RetryOptions | undefined): Promise<void> {
    const before = this.#writes.get(stream) ?? Promise.resolve();
    const write = before
      .then(() => this.#move(deliveries, retry))
      .finally(() => {
        if (this.#writes.get(stream) === write) this.#writes.delete(stream);
      });
    this.#writes.set(stream, write);
    return write;
  }

  // Parks first and acks the broker afterwards: a crash in between duplicates a message and never loses one.
  async #move(deliveries: readonly Delivery[], retry: RetryOptions | undefined): Promise<void> {
    const ours = deliveries.filter(({ signal }) => !signal.aborted);
    if (ours.length === 0) return;
    const parked = ours.map((delivery) => toParked(delivery, retry));
    const done = await this.#retryUntilClosed("parking messages", async () => {
      await this.#options.parkedKeys.park(parked);
      return true;
    });
    if (done === undefined)
      return void (await Promise.allSettled(ours.map((delivery) => delivery.release())));
    await Promise.allSettled(ours.map((delivery) => delivery.ack()));
  }

  #retryUntilClosed<T>(doing: string, work: () => Promise<T>): Promise<T | undefined> {
    // A closing gate still tries once, so that a failure reported during the stop is stored.
    return retryWithBackoff(work, {
      shouldContinue: () => !this.closing,
      onFailure: ({ error, retryInMs }) =>
        this.#options.observer.emit("storage.failed", { doing, error: errorText(error), retryInMs }),
    });
  }

  #stateFor(stream: string, topic: string, key: string): KeyState {
    const known = this.#keys.get(stream);
    if (known !== undefined) return known;
    const state: KeyState = { topic, key, open: new Set(), waiting: [], parking: false };
    this.#keys.set(stream, state);
    return state;
  }
}

function toParked({ message, attempt }: Delivery, retry: RetryOptions | undefined): ParkedMessage {
  const countedAttempts = retry?.countsAsAttempt === true ? 1 : 0;
  return {
    message,
    attempts: attempt - 1 + countedAttempts,
    delayMs: retry?.delayMs ?? 0,
    error: retry?.error ?? null,
  };
}

/** The deliveries of one key of one topic in this process. */
interface KeyState {
  readonly topic: string;
  readonly key: string;
  /** Handed out and not settled. */
  readonly open: Set<Delivery>;
  /** Arrived behind the open ones and not handed out. */
  readonly waiting: Delivery[];
  /** A message of the key failed here or is parked, so that new arrivals are parked behind it. */
  parking: boolean;
}

type Route = "hand out" | "wait" | "ask";

/**
 * Chooses what to do with an arriving delivery. While a predecessor is in the handler, no message of the key
 * can be parked, because only the worker that holds the key parks its messages.
 */
function chooseRoute({ open, waiting, parking }: KeyState): Route {
  if (parking) return "wait";
  return open.size > 0 && waiting.length === 0 ? "hand out" : "ask";
}

/** True when all deliveries before the waiting ones are settled, so that these can be parked in order. */
function canPark({ open, waiting, parking }: KeyState): boolean {
  return parking && open.size === 0 && waiting.length > 0;
}

/** True when the state of the key can be dropped. */
function isEmpty({ open, waiting }: KeyState): boolean {
  return open.size === 0 && waiting.length === 0;
}

interface Gate {
  park(delivery: GatedDelivery, retry: RetryOptions | undefined): Promise<void>;
  onSettled(delivery: GatedDelivery): void;
  readonly closing: boolean;
}

/** A broker's delivery of a keyed message. A retry goes through the parked keys. */
class GatedDelivery implements Delivery {
  readonly inner: Delivery;
  readonly #gate: Gate;
  readonly deadLetter?: (note: DeadLetterNote) => Promise<void>;
  #isSettled = false;

  constructor(inner: Delivery, gate: Gate) {
    this.inner = inner;
    this.#gate = gate;
    if (inner.deadLetter !== undefined) {
      this.deadLetter = (note) => this.#settle(async () => inner.deadLetter?.(note));
    }
  }

  get message(): Message {
    return this.inner.message;
  }

  get attempt(): number {
    return this.inner.attempt;
  }

  get orderKey(): string | null {
    return this.inner.orderKey;
  }

  get signal(): AbortSignal {
    return this.inner.signal;
  }

  ack(): Promise<void> {
    return this.#settle(() => this.inner.ack());
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#settle(() => this.#gate.park(this, options));
  }

  // A stop returns everything to the broker, which keeps its order. Otherwise a predecessor has to come
  // first.
  release(): Promise<void> {
    return this.#settle(() => (this.#gate.closing ? this.inner.release() : this.#gate.park(this, undefined)));
  }

  // A failure leaves the delivery unsettled, so that the caller can try again.
  async #settle(action: () => Promise<void>): Promise<void> {
    if (this.#isSettled) return;
    await action();
    this.#isSettled = true;
    this.#gate.onSettled(this);
  }
}
