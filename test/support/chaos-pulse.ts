import type pg from "pg";

const EVERY_MS = 50;

/**
 * How long the machine kept a trivial round trip to the database waiting. A take-over is a handful of round trips; on
 * a machine that stands still nobody can be quick, and that must not be taken for a fault of the product.
 */
export class Pulse {
  readonly #beats: { readonly atMs: number; readonly lateMs: number }[] = [];
  readonly #pool: pg.Pool;
  #stopped = false;
  #running: Promise<void> | undefined;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
  }

  start(): void {
    this.#running ??= this.#run();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  /** The longest wait that overlapped with this time. */
  worst(fromMs: number, toMs: number): number {
    const around = this.#beats.filter(({ atMs, lateMs }) => atMs >= fromMs && atMs - lateMs <= toMs);
    return Math.max(0, ...around.map(({ lateMs }) => lateMs));
  }

  async #run(): Promise<void> {
    while (!this.#stopped) {
      const began = performance.now();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
      await this.#pool.query("select 1").catch(() => undefined);
      this.#beats.push({ atMs: Date.now(), lateMs: performance.now() - began - EVERY_MS });
    }
  }
}
