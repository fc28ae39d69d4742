import type { Delivery } from "../transport/index.ts";
import { CountedDelivery } from "./counted-delivery.ts";

/**
 * Broker and lot each bring up to a prefetch of their own; the consumer is given no more than one of both together. The
 * rest waits here, in the order it came.
 */
export class Turnstile {
  readonly #most: number;
  readonly #receive: (delivery: Delivery) => void;
  readonly #waiting: Delivery[] = [];
  #inside = 0;
  #turning = false;
  #closed = false;

  constructor(most: number, receive: (delivery: Delivery) => void) {
    this.#most = most;
    this.#receive = receive;
  }

  arrived(delivery: Delivery): void {
    this.#waiting.push(delivery);
    this.#turn();
  }

  /** Lets nobody in any more. Who waits is unsettled: closing the sources gives it back. */
  close(): void {
    this.#closed = true;
  }

  // A delivery may be settled, or lost, while it is being handed out.
  #turn(): void {
    if (this.#turning) return;
    this.#turning = true;
    while (!this.#closed && this.#inside < this.#most) {
      const next = this.#waiting.shift();
      if (next === undefined) break;
      if (!next.signal.aborted) this.#enter(next);
    }
    this.#turning = false;
  }

  #enter(delivery: Delivery): void {
    this.#inside += 1;
    this.#receive(
      new CountedDelivery(delivery, () => {
        this.#inside -= 1;
        this.#turn();
      }),
    );
  }
}
