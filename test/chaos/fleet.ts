import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { program } from "../support/programs.ts";
import type { ChildOptions, LoadOptions } from "./child-contract.ts";

/** One line of a child's log that a person would look at. */
export interface LogLine {
  readonly worker: string;
  readonly level: string;
  readonly event: string;
  readonly text: string;
}

/** What a child runs, below test/chaos. */
export type ChildScript = "worker" | "load" | "saga-worker";

/** A real process of the fleet. */
export class ChaosChild {
  readonly id: string;
  /** Whether it relays and consumes; a load only publishes. */
  readonly works: boolean;
  /** Resolves when it says that it runs; rejects when it ends before. */
  readonly ready: Promise<void>;
  /** Its exit code, or the signal that ended it. */
  readonly ended: Promise<number | NodeJS.Signals>;
  readonly log: LogLine[] = [];
  readonly #child: ChildProcess;
  #alive = true;
  #isReady = false;

  constructor(script: ChildScript, options: ChildOptions) {
    this.id = options.id;
    this.works = script !== "load";
    const path = program(new URL(`./${script}.ts`, import.meta.url));
    this.#child = spawn(process.execPath, [path], {
      env: { PATH: process.env["PATH"], HOME: process.env["HOME"], CHAOS: JSON.stringify(options) },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.ended = once(this.#child, "close").then(([code, signal]) => {
      this.#alive = false;
      return (code ?? signal) as number | NodeJS.Signals;
    });
    this.ready = this.#waitForReady().then(() => void (this.#isReady = true));
    this.ready.catch(() => undefined); // awaited where it is needed; a victim may die before it is ready
    this.#readLog();
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get alive(): boolean {
    return this.#alive;
  }

  get isReady(): boolean {
    return this.#isReady && this.#alive;
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  async #waitForReady(): Promise<void> {
    const { stdout } = this.#child;
    if (stdout === null) return;
    const said = new Promise<true>((resolve) => {
      createInterface({ input: stdout }).on("line", (line) => line === "ready" && resolve(true));
    });
    const outcome = await Promise.race([said, this.ended]);
    if (outcome !== true)
      throw new Error(`${this.id} ended with ${outcome} before it was ready: ${this.tail()}`);
  }

  #readLog(): void {
    const { stderr } = this.#child;
    if (stderr === null) return;
    createInterface({ input: stderr }).on("line", (text) => {
      const { level, event } = parseLogLine(text);
      if (level !== "info") this.log.push({ worker: this.id, level, event, text });
    });
  }

  /** What it said last. */
  tail(): string {
    return this.log
      .slice(-10)
      .map(({ text }) => text)
      .join("\n");
  }
}

// A line that is no log line was printed by a crash.
function parseLogLine(text: string): { level: string; event: string } {
  try {
    const { level, event } = JSON.parse(text) as { level?: string; event?: string };
    return { level: level ?? "error", event: event ?? "unknown" };
  } catch {
    return { level: "error", event: "printed" };
  }
}

/** A worker has 30 s to finish, and a moment to exit. */
const GRACE_MS = 40_000;

type Common = Omit<ChildOptions, "id">;

/** The processes under test: workers that are replaced when they fall, and loads that run until the target. */
export class ChaosFleet {
  /** Ended without having been asked to. */
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

  /** Like a crash: nothing is reported, nothing is finished. */
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
