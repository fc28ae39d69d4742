import { ChaosChild, type ChildScript, type LogLine } from "./chaos-child.ts";
import type { ChildOptions, LoadOptions } from "./chaos-contract.ts";

/** A worker has 30 s to finish, and a moment to exit. */
const GRACE_MS = 40_000;

type Common = Omit<ChildOptions, "id">;

/** The processes under test: workers that are replaced when they fall, and loads that run until the target. */
export class ChaosFleet {
  /** Ended although nobody asked for it. */
  readonly unexpected: string[] = [];
  readonly #common: Common;
  readonly #all: ChaosChild[] = [];
  readonly #asked = new Set<ChaosChild>();
  #workers: ChaosChild[] = [];
  #loads: ChaosChild[] = [];
  #count = 0;

  constructor(common: Common) {
    this.#common = common;
  }

  get workers(): readonly ChaosChild[] {
    return this.#workers;
  }

  get loads(): readonly ChaosChild[] {
    return this.#loads;
  }

  get log(): LogLine[] {
    return this.#all.flatMap((child) => child.log);
  }

  async startWorkers(count: number, script: ChildScript = "worker"): Promise<void> {
    const started = Array.from({ length: count }, () => this.startWorker(script));
    await Promise.all(started.map((child) => child.ready));
  }

  /** A process that has not begun to run yet does not know what a signal means. */
  async allReady(): Promise<void> {
    await Promise.allSettled(this.#workers.map((child) => child.ready));
  }

  /** `url`: another way to the database than the rest of the fleet has. */
  startWorker(script: ChildScript = "worker", { url = this.#common.url } = {}): ChaosChild {
    this.#count += 1;
    const child = this.#watch(new ChaosChild(script, { ...this.#common, url, id: `w${this.#count}` }));
    this.#workers.push(child);
    return child;
  }

  startLoad(options: Omit<LoadOptions, keyof ChildOptions>): ChaosChild {
    this.#count += 1;
    const child = this.#watch(new ChaosChild("load", { ...this.#common, ...options, id: `l${this.#count}` }));
    this.#loads.push(child);
    return child;
  }

  /** As a crash does: nothing is told, nothing is finished. */
  async kill(child: ChaosChild): Promise<void> {
    this.#remove(child);
    child.signal("SIGKILL");
    await child.ended;
  }

  /** As an orchestrator does: SIGTERM, then wait, then SIGKILL. */
  async retire(child: ChaosChild): Promise<number | NodeJS.Signals> {
    this.#remove(child);
    child.signal("SIGTERM");
    const patience = setTimeout(() => child.signal("SIGKILL"), GRACE_MS);
    return child.ended.finally(() => clearTimeout(patience));
  }

  /** Ends everything, gently. */
  async retireAll(): Promise<(number | NodeJS.Signals)[]> {
    return Promise.all([...this.#workers, ...this.#loads].map((child) => this.retire(child)));
  }

  /** For the end of a test that failed half-way. */
  async killAll(): Promise<void> {
    for (const child of this.#all) {
      this.#asked.add(child);
      if (child.alive) child.signal("SIGKILL");
    }
    await Promise.all(this.#all.map((child) => child.ended));
  }

  async waitForLoads(): Promise<void> {
    await Promise.all(this.#loads.map((child) => child.ended));
    this.#loads = [];
  }

  #remove(child: ChaosChild): void {
    this.#asked.add(child);
    this.#workers = this.#workers.filter((other) => other !== child);
    this.#loads = this.#loads.filter((other) => other !== child);
  }

  #watch(child: ChaosChild): ChaosChild {
    this.#all.push(child);
    void child.ended.then((how) => {
      const finished = this.#loads.includes(child) && how === 0;
      if (!this.#asked.has(child) && !finished)
        this.unexpected.push(`${child.id} ended with ${how}: ${child.tail()}`);
    });
    return child;
  }
}
