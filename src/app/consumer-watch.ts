import { Loop, systemClock, type Clock, type Service } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";

interface WatchedConsumer {
  readonly name: string;
  health(): { readonly ok: boolean; readonly detail?: string };
}

interface ConsumerWatchOptions {
  readonly consumers: readonly WatchedConsumer[];
  readonly observer: Observer;
  readonly clock?: Clock;
}

const EVERY_MS = 1_000;
/** A consumer that is being rebalanced is idle for a moment. Only repeated failures count as an interruption. */
const CHECKS_IN_A_ROW = 3;

/** Emits one event when a consumer stops receiving, with the reason, and one when it receives again. */
export class ConsumerWatch implements Service {
  readonly #options: ConsumerWatchOptions;
  readonly #clock: Clock;
  readonly #down = new Map<string, { readonly sinceMs: number; looks: number }>();
  readonly #loop: Loop;

  constructor(options: ConsumerWatchOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#loop = new Loop({
      step: async () => {
        this.check();
        return EVERY_MS;
      },
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  check(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const consumer of this.#options.consumers) {
      const { ok, detail = "unknown" } = consumer.health();
      const down = this.#down.get(consumer.name);
      if (ok) this.#markUp(consumer.name, nowMs);
      else if (down === undefined) this.#down.set(consumer.name, { sinceMs: nowMs, looks: 1 });
      else if (++down.looks === CHECKS_IN_A_ROW) {
        this.#options.observer.emit("consumer.interrupted", { consumer: consumer.name, error: detail });
      }
    }
  }

  #markUp(consumer: string, nowMs: number): void {
    const down = this.#down.get(consumer);
    this.#down.delete(consumer);
    if (down === undefined || down.looks < CHECKS_IN_A_ROW) return;
    this.#options.observer.emit("consumer.resumed", { consumer, durationMs: nowMs - down.sinceMs });
  }
}
