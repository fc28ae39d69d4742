import type { Delivery } from "../transport/index.ts";
import { CountedDelivery } from "./counted-delivery.ts";

interface Comer {
  readonly delivery: Delivery;
  readonly enter: (delivery: Delivery) => void;
}

/**
 * Broker and lot each bring up to a prefetch of their own; no more than one of both together is let in. The rest waits
 * here, in the order it came.
 */
export class Turnstile {
  readonly #most: number;
  readonly #waiting: Comer[] = [];
  #inside = 0;
  #turning = false;
  #closed = false;

  constructor(most: number) {
    this.#most = most;
  }

  arrived(delivery: Delivery, enter: (delivery: Delivery) => void): void {
    this.#waiting.push({ delivery, enter });
    this.#turn();
  }

  /** Lets nobody in any more. Who waits is unsettled: closing the sources gives it back. */
  close(): void {
    this.#closed = true;
  }

  // A delivery may be settled, or lost, while it is being let in.
  #turn(): void {
    if (this.#turning) return;
    this.#turning = true;
    try {
      while (!this.#closed && this.#inside < this.#most && this.#waiting.length > 0) this.#letIn();
    } finally {
      this.#turning = false;
    }
  }

  #letIn(): void {
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#inside += 1;
    const counted = new CountedDelivery(next.delivery, () => {
      this.#inside -= 1;
      this.#turn();
    });
    if (!counted.signal.aborted) next.enter(counted); // else it was lost while it waited
  }
}
