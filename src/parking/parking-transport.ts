import { errorText } from "../errors/index.ts";
import { type Message, streamFor } from "../message/index.ts";
import { random, sleep } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type {
  BrokerTopology,
  Capabilities,
  Consumption,
  DeadLetterNote,
  Delivery,
  PlannedGroup,
  PublishOptions,
  PublishOutcome,
  RetryOptions,
  Subscription,
  Transport,
} from "../transport/index.ts";
import type { ParkedKeys, ParkedMessage, PostgresTransport } from "../transports/postgres/index.ts";

/** A broker whose keyed retries and replayed letters wait in Postgres. Everything else is the broker's own. */
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

  declares(groups: readonly PlannedGroup[]): BrokerTopology {
    return this.#broker.declares?.(groups) ?? { objects: [], permissions: [] };
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    const { group, ordered } = subscription;
    const gate = ordered
      ? new KeyGate({
          lot: await this.#tables.openParkedKeys(group),
          group,
          observer: this.#observer,
          receive,
        })
      : undefined;
    let fresh: Consumption | undefined = undefined;
    const copy = (message: Message, note: DeadLetterNote): Promise<void> => this.#copy(fresh, message, note);
    // Retries of an unordered group wait at the broker, but its replayed letters come from the tables as well.
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

  // The letter is written. A broker that is down must not hold up those who are alive.
  async #copy(fresh: Consumption | undefined, message: Message, note: DeadLetterNote): Promise<void> {
    try {
      await fresh?.deadLetter?.(message, note);
    } catch (error) {
      this.#observer.emit("transport.unreachable", {
        transport: this.name,
        doing: `showing dead letter ${message.id} there`,
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

/** A delivery out of the lot. It is the lot's in everything but its death, which the broker hears of too. */
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
    if (this.#inner.ackWith === undefined) throw new Error("a lot lives in the database of its consumer");
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
  readonly lot: ParkedKeys;
  readonly group: string;
  readonly observer: Observer;
  readonly receive: (delivery: Delivery) => void;
}

/**
 * Stands between a broker's deliveries and the consumer. A keyed message is handed out only when nothing of its key
 * waits in the lot; one that fails goes into the lot, and what was behind it follows in order.
 */
export class KeyGate {
  readonly #options: KeyGateOptions;
  readonly #keys = new Map<string, KeyState>();
  readonly #asking = new Set<string>();
  /** Per street, one after the other: the lot's order is the order of the writes. */
  readonly #writes = new Map<string, Promise<void>>();
  #look: Promise<void> | undefined;
  closing = false;

  constructor(options: KeyGateOptions) {
    this.#options = options;
  }

  admit(delivery: Delivery): void {
    // Left unsettled: closing gives it back.
    if (this.closing) return;
    const { key, topic } = delivery.message;
    if (delivery.orderKey === null || key === null || delivery.flaw !== undefined) {
      return this.#options.receive(delivery);
    }
    const stream = streamFor(topic, key);
    const street = this.#stateFor(stream, topic, key);
    const way = chooseRoute(street);
    if (way === "hand out") return this.#handOut(street, delivery);
    street.waiting.push(delivery);
    if (way === "wait") return this.#flush(stream, street);
    this.#asking.add(stream);
    this.#look ??= this.#ask();
  }

  /** From the handler's hands into the lot. What arrives of the key from now on goes the same way. */
  async park(delivery: GatedDelivery, retry: RetryOptions | undefined): Promise<void> {
    const { topic, key } = delivery.message;
    const stream = streamFor(topic, key ?? "");
    const street = this.#stateFor(stream, topic, key ?? "");
    street.parking = true;
    await this.#write(stream, [delivery.inner], retry);
  }

  onSettled(delivery: GatedDelivery): void {
    const { topic, key } = delivery.message;
    const stream = streamFor(topic, key ?? "");
    const street = this.#keys.get(stream);
    if (street === undefined) return;
    street.open.delete(delivery);
    this.#flush(stream, street);
  }

  /** What is being parked has to be there before the broker gives the key to somebody else. */
  async idle(): Promise<void> {
    await this.#look;
    while (this.#writes.size > 0) await Promise.allSettled(this.#writes.values());
  }

  #handOut(street: KeyState, delivery: Delivery): void {
    const gated = new GatedDelivery(delivery, this);
    street.open.add(gated);
    delivery.signal.addEventListener("abort", () => this.onSettled(gated), { once: true });
    this.#options.receive(gated);
  }

  /** One statement for all the keys that arrived while the last one was under way. */
  async #ask(): Promise<void> {
    while (this.#asking.size > 0 && !this.closing) {
      const asked = new Map(
        [...this.#asking].flatMap((stream) => {
          const street = this.#keys.get(stream);
          return street === undefined ? [] : [[stream, street] as const];
        }),
      );
      this.#asking.clear();
      const occupied = await this.#retryUntilClosed("looking for parked messages", () =>
        this.#options.lot.occupied([...asked.values()]),
      );
      if (occupied === undefined || this.closing) break;
      for (const [stream, street] of asked) this.#applyAnswer(stream, street, occupied.has(stream));
    }
    // At once, not when the promise is settled: whoever arrives in between would wait for ever.
    this.#look = undefined;
  }

  // An answer counts only for the street that was asked about: since then all of it may have failed and been parked, and
  // what arrived behind that has to ask for itself.
  #applyAnswer(stream: string, street: KeyState, occupied: boolean): void {
    if (this.#keys.get(stream) !== street) return;
    if (occupied) street.parking = true;
    if (street.parking) return this.#flush(stream, street);
    for (const delivery of street.waiting.splice(0)) {
      if (!delivery.signal.aborted) this.#handOut(street, delivery);
    }
  }

  #flush(stream: string, street: KeyState): void {
    if (canPark(street)) {
      const moved = street.waiting.splice(0);
      void this.#write(stream, moved, undefined).then(() => this.#flush(stream, street));
    } else if (isEmpty(street) && !this.#writes.has(stream)) {
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

  // First into the lot, then off the broker: what happens in between costs a copy, never a message.
  async #move(deliveries: readonly Delivery[], retry: RetryOptions | undefined): Promise<void> {
    const ours = deliveries.filter(({ signal }) => !signal.aborted);
    if (ours.length === 0) return;
    const parked = ours.map((delivery) => toParked(delivery, retry));
    const done = await this.#retryUntilClosed("parking messages", async () => {
      await this.#options.lot.park(parked);
      return true;
    });
    if (done === undefined)
      return void (await Promise.allSettled(ours.map((delivery) => delivery.release())));
    await Promise.allSettled(ours.map((delivery) => delivery.ack()));
  }

  async #retryUntilClosed<T>(doing: string, work: () => Promise<T>): Promise<T | undefined> {
    // Even a gate that closes tries once, so that a failure said on the way out is not forgotten.
    for (let attempt = 1; attempt === 1 || !this.closing; attempt++) {
      try {
        return await work();
      } catch (error) {
        const retryInMs = Math.min(2_000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + random() / 2);
        const text = errorText(error);
        this.#options.observer.emit("storage.failed", { doing, error: text, retryInMs });
        await sleep(retryInMs);
      }
    }
    return undefined;
  }

  #stateFor(stream: string, topic: string, key: string): KeyState {
    const known = this.#keys.get(stream);
    if (known !== undefined) return known;
    const street: KeyState = { topic, key, open: new Set(), waiting: [], parking: false };
    this.#keys.set(stream, street);
    return street;
  }
}

function toParked({ message, attempt }: Delivery, retry: RetryOptions | undefined): ParkedMessage {
  const charge = retry?.charged === true ? 1 : 0;
  return {
    message,
    attempts: attempt - 1 + charge,
    delayMs: retry?.delayMs ?? 0,
    error: retry?.error ?? null,
  };
}

/** One key of one topic, as far as this process has to do with it. */
interface KeyState {
  readonly topic: string;
  readonly key: string;
  /** Handed out and not settled. */
  readonly open: Set<Delivery>;
  /** Arrived behind them and not handed out. */
  readonly waiting: Delivery[];
  /** Something of it failed here, or waits in the lot: what arrives is parked behind it. */
  parking: boolean;
}

type Route = "hand out" | "wait" | "ask the lot";

/**
 * Where an arriving delivery goes. While a predecessor is in the handler's hands nothing of the key can be in the lot,
 * since only whoever holds the key puts anything there.
 */
function chooseRoute({ open, waiting, parking }: KeyState): Route {
  if (parking) return "wait";
  return open.size > 0 && waiting.length === 0 ? "hand out" : "ask the lot";
}

/** True when everything before those that wait is settled, so that they may be parked in their order. */
function canPark({ open, waiting, parking }: KeyState): boolean {
  return parking && open.size === 0 && waiting.length > 0;
}

/** True when the process may forget about the key. */
function isEmpty({ open, waiting }: KeyState): boolean {
  return open.size === 0 && waiting.length === 0;
}

interface Gate {
  park(delivery: GatedDelivery, retry: RetryOptions | undefined): Promise<void>;
  onSettled(delivery: GatedDelivery): void;
  readonly closing: boolean;
}

/** A broker's delivery of a keyed message: what comes back of it comes back through the lot. */
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

  // A stop gives everything back to the broker, which keeps its order. Otherwise a predecessor has to come first.
  release(): Promise<void> {
    return this.#settle(() => (this.#gate.closing ? this.inner.release() : this.#gate.park(this, undefined)));
  }

  // A failure leaves it unsettled, so that whoever settles may try again.
  async #settle(way: () => Promise<void>): Promise<void> {
    if (this.#isSettled) return;
    await way();
    this.#isSettled = true;
    this.#gate.onSettled(this);
  }
}
