import { readFileSync } from "node:fs";

const EVERY_MS = 50;

interface Sample {
  readonly atMs: number;
  /** How long the process has been ready to run without getting a processor, all its life. */
  readonly waitedMs: number;
}

/**
 * How long the machine kept the processes of the fleet from running. A take-over is a handful of steps; on a machine
 * that is busy elsewhere nobody can be quick, and that must not be taken for a fault of the product. Only Linux tells;
 * elsewhere every process counts as served at once.
 */
export class Starvation {
  readonly #samples = new Map<string, Sample[]>();
  readonly #running: () => readonly { readonly id: string; readonly pid: number }[];
  #timer: NodeJS.Timeout | undefined;

  constructor(running: () => readonly { readonly id: string; readonly pid: number }[]) {
    this.#running = running;
  }

  start(): void {
    this.#timer ??= setInterval(() => this.#look(), EVERY_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  waitedMs(id: string, fromMs: number, toMs: number): number {
    const around = (this.#samples.get(id) ?? []).filter(
      ({ atMs }) => atMs >= fromMs - EVERY_MS && atMs <= toMs + EVERY_MS,
    );
    return Math.round((around.at(-1)?.waitedMs ?? 0) - (around[0]?.waitedMs ?? 0));
  }

  #look(): void {
    const atMs = Date.now();
    for (const { id, pid } of this.#running()) {
      const waitedMs = waitedBy(pid);
      const known = this.#samples.get(id);
      if (known === undefined) this.#samples.set(id, [{ atMs, waitedMs }]);
      else known.push({ atMs, waitedMs });
    }
  }
}

function waitedBy(pid: number): number {
  try {
    return Number(readFileSync(`/proc/${pid}/schedstat`, "utf8").split(" ")[1]) / 1e6;
  } catch {
    return 0;
  }
}
