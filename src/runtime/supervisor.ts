import type { Clock } from "./clock.ts";
import { systemClock } from "./clock.ts";
import { withDeadline } from "./deadline.ts";
import type { Service } from "./service.ts";

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
