import type { Clock } from "./clock.ts";
import { systemClock } from "./clock.ts";
import { withDeadline } from "./deadline.ts";
import type { Service } from "./service.ts";

export interface SupervisedService {
  readonly name: string;
  readonly service: Service;
  /** All of this kind stop together, before the rest: what takes in work begins no more while another of them ends. */
  readonly stopsFirst?: boolean;
}

export interface SupervisorOptions {
  /** Started in this order, stopped in the reverse one, after those that stop first. */
  readonly services: readonly SupervisedService[];
  /** How long stopping may take altogether. Default 30 000. */
  readonly stopDeadlineMs?: number;
  /** Hears of a service that failed to stop (`error`) or was too late (`error` undefined). */
  readonly onStopTrouble?: (name: string, error: unknown) => void;
  readonly clock?: Clock;
}

/** Several services as one. A failing start stops what already runs; a failing stop does not spare the rest. */
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
    // The caller of start() hears of its failure; the stop only needs it to be over.
    await starting.catch(() => undefined);
    await this.#stopAll();
    this.#starting = undefined;
    this.#stopping = undefined;
  }

  async #startAll(): Promise<void> {
    for (const supervised of this.#options.services) {
      // Counted before it runs: a service that fails half-way still gets its stop.
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
