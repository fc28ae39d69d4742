import type { Backoff } from "./backoff.ts";
import { Loop } from "./loop.ts";
import { systemClock, withDeadline, type Clock } from "./time.ts";

/**
 * The start/stop contract of loops, relays, consumers and the bus. Starting twice, stopping twice and
 * stopping before the start are harmless, and a stopped service can be started again. `stop` resolves when
 * the service no longer runs anything.
 */
export interface Service {
  start(): Promise<void>;
  stop(): Promise<void>;
}

export interface PeriodicOptions {
  /** The wait after a round that returned no wait of its own, in milliseconds. */
  readonly everyMs: number;
  /** Waits after failed rounds. Default: 1 s, doubling up to 60 s. */
  readonly backoff?: Pick<Backoff, "firstMs" | "maxMs">;
}

export interface FailedRound {
  readonly error: unknown;
  readonly failuresInARow: number;
  /** The wait before the next round, in milliseconds. */
  readonly retryInMs: number;
}

/**
 * Base class of services that do one round of work at intervals. The first round runs at the start. A failed round is
 * reported and tried again after a growing wait; it ends neither the service nor the process.
 */
export abstract class PeriodicService implements Service {
  readonly #loop: Loop;

  constructor({ everyMs, backoff = { firstMs: 1_000, maxMs: 60_000 } }: PeriodicOptions) {
    this.#loop = new Loop({
      step: async (signal) => (await this.runRound(signal)) ?? everyMs,
      onError: (error, failuresInARow, retryInMs) => this.onFailure({ error, failuresInARow, retryInMs }),
      backoffMs: backoff.firstMs,
      maxBackoffMs: backoff.maxMs,
    });
  }

  get running(): boolean {
    return this.#loop.running;
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  /** Aborts the signal of the current round and waits until the round has ended. */
  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Starts the next round without waiting. A failing service keeps its wait. */
  wake(): void {
    this.#loop.wake();
  }

  /**
   * One round of work. May return how many milliseconds to wait before the next one: 0 continues at once, Infinity
   * waits for `wake()`.
   */
  protected abstract runRound(signal: AbortSignal): Promise<number | void>;

  /** Called after a failed round. Does nothing by default. */
  protected onFailure(_failure: FailedRound): void {}
}

export interface SupervisedService {
  readonly name: string;
  readonly service: Service;
  /**
   * Services with this flag stop together, before the others, so that none of them takes in work while
   * another one stops.
   */
  readonly stopsFirst?: boolean;
}

export interface SupervisorOptions {
  /** Started in this order. Stopped in reverse order, after the services with `stopsFirst`. */
  readonly services: readonly SupervisedService[];
  /** The total time for stopping, in milliseconds. Default 30 000. */
  readonly stopDeadlineMs?: number;
  /** Called for a service that failed to stop (`error`) or missed the deadline (`error` is undefined). */
  readonly onStopTrouble?: (name: string, error: unknown) => void;
  readonly clock?: Clock;
}

/**
 * Runs several services as one. If a start fails, the services that already run are stopped. If a stop fails,
 * the other services are still stopped.
 */
export class Supervisor implements Service {
  readonly #options: SupervisorOptions;
  readonly #clock: Clock;
  #started: SupervisedService[] = [];
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  async start(): Promise<void> {
    if (this.#stopping !== undefined) await this.#stopping;
    this.#starting ??= this.#startAll().catch(async (error: unknown) => {
      await this.#stopAll();
      this.#starting = undefined;
      throw error;
    });
    return this.#starting;
  }

  async stop(): Promise<void> {
    if (this.#starting === undefined) return;
    this.#stopping ??= this.#stopAfterStart(this.#starting);
    return this.#stopping;
  }

  async #stopAfterStart(starting: Promise<void>): Promise<void> {
    // The caller of start() gets its error; the stop only needs it to be over.
    await starting.catch(() => undefined);
    await this.#stopAll();
    this.#starting = undefined;
    this.#stopping = undefined;
  }

  async #startAll(): Promise<void> {
    for (const supervised of this.#options.services) {
      // Registered before it starts, so that a service that fails halfway is stopped too.
      this.#started.push(supervised);
      await supervised.service.start();
    }
  }

  async #stopAll(): Promise<void> {
    const endMs = this.#clock.monotonicMs() + (this.#options.stopDeadlineMs ?? 30_000);
    const leftMs = (): number => Math.max(0, endMs - this.#clock.monotonicMs());
    const started = this.#started.splice(0).reverse();
    const first = started.filter(({ stopsFirst }) => stopsFirst === true);
    await Promise.all(first.map((supervised) => this.#stopOne(supervised, leftMs())));
    for (const supervised of started) {
      if (!first.includes(supervised)) await this.#stopOne(supervised, leftMs());
    }
  }

  async #stopOne({ name, service }: SupervisedService, remainingMs: number): Promise<void> {
    try {
      const inTime = await withDeadline(
        service.stop().then(() => true),
        remainingMs,
        () => false,
      );
      if (!inTime) this.#options.onStopTrouble?.(name, undefined);
    } catch (error) {
      this.#options.onStopTrouble?.(name, error);
    }
  }
}
