import { errorText } from "../errors/index.ts";
import { streamFor } from "../message/index.ts";
import { random, sleep } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Delivery, RetryOptions } from "../transport/index.ts";
import type { ParkedMessage, ParkedKeys } from "../transports/postgres/index.ts";
import { GatedDelivery } from "./gated-delivery.ts";
import { isEmpty, canPark, chooseRoute, type KeyState } from "./key-state.ts";

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
