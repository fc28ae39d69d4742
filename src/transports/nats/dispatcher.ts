import type { JsMsg } from "@nats-io/jetstream";
import type { Delivery } from "../../transport/index.ts";
import { NatsDelivery, type DeliveryParts, type Source } from "./delivery.ts";

export interface DispatcherParts extends Pick<
  DeliveryParts,
  "ordered" | "copyToRetry" | "copyToDeadLetters"
> {
  readonly prefetch: number;
  readonly maxBytes: () => number;
  readonly receive: (delivery: Delivery) => void;
  /** Told when a delivery has come to its end. */
  readonly settled: () => void;
}

/** Hands out what its sources have, one of each in turn, and never more than the prefetch unsettled. */
export class Dispatcher {
  readonly #parts: DispatcherParts;
  readonly #open = new Set<NatsDelivery>();
  readonly #sources: Source[] = [];
  #turn = 0;
  #isPaused = false;
  #pumping = false;

  constructor(parts: DispatcherParts) {
    this.#parts = parts;
  }

  get paused(): boolean {
    return this.#isPaused;
  }

  add(source: Source): void {
    this.#sources.push(source);
  }

  pause(): void {
    this.#isPaused = true;
  }

  /** Takes a source out; what was handed out of it is lost to whoever holds it. */
  remove(source: Source): void {
    const index = this.#sources.indexOf(source);
    if (index >= 0) this.#sources.splice(index, 1);
    for (const delivery of Array.from(this.#open)) if (delivery.source === source) delivery.abandon();
    this.dispatch();
  }

  /** Whether something of this source is still in somebody's hands. */
  holds(source: Source): boolean {
    for (const delivery of this.#open) if (delivery.source === source) return true;
    return false;
  }

  // A receiver may settle within the call, which comes back here.
  dispatch(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    try {
      while (!this.#isPaused && this.#open.size < this.#parts.prefetch && this.#deliverNext());
    } finally {
      this.#pumping = false;
    }
  }

  #deliverNext(): boolean {
    const count = this.#sources.length;
    for (let step = 0; step < count; step++) {
      const source = this.#sources[(this.#turn + step) % count];
      const msg = source?.takeNext();
      if (source === undefined || msg === undefined) continue;
      this.#turn = (this.#turn + step + 1) % count;
      this.#deliver(source, msg);
      return true;
    }
    return false;
  }

  #deliver(source: Source, msg: JsMsg): void {
    const { ordered, copyToRetry, copyToDeadLetters: copyToDead, maxBytes, receive } = this.#parts;
    const onClosed = (delivery: NatsDelivery): void => {
      this.#open.delete(delivery);
      this.#parts.settled();
      queueMicrotask(() => this.dispatch());
    };
    const delivery = new NatsDelivery({
      msg,
      source,
      ordered,
      maxBytes: maxBytes(),
      copyToRetry,
      copyToDeadLetters: copyToDead,
      onClosed,
    });
    this.#open.add(delivery);
    receive(delivery);
  }
}
