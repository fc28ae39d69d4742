import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { ChildOptions } from "./chaos-contract.ts";
import { program } from "./program.ts";

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
    const path = program(new URL(`../chaos/${script}.ts`, import.meta.url));
    this.#child = spawn(process.execPath, [path], {
      env: { PATH: process.env["PATH"], HOME: process.env["HOME"], CHAOS: JSON.stringify(options) },
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.ended = once(this.#child, "close").then(([code, signal]) => {
      this.#alive = false;
      return (code ?? signal) as number | NodeJS.Signals;
    });
    this.ready = this.#waitForReady().then(() => void (this.#isReady = true));
    this.ready.catch(() => undefined); // whoever needs it awaits it; a victim may die before it is ready
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

// Whatever is not a log line was printed by somebody in distress.
function parseLogLine(text: string): { level: string; event: string } {
  try {
    const { level, event } = JSON.parse(text) as { level?: string; event?: string };
    return { level: level ?? "error", event: event ?? "unknown" };
  } catch {
    return { level: "error", event: "printed" };
  }
}
