import { readFileSync, readlinkSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { randomToken } from "./random.ts";
import { after } from "./time.ts";

// A process id is unique only within one boot of one machine, and within one container on it.
const machine = ((): string | undefined => {
  try {
    const start = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return `${start}/${readlinkSync("/proc/self/ns/pid")}`;
  } catch {
    return undefined; // not Linux, or /proc is not readable
  }
})();

/**
 * Returns boot, pid namespace, pid and start time of a process, or null where they cannot be read. Another
 * process on the same machine can pass it to `hasEnded`.
 */
export function locateProcess(pid: number): string | null {
  const life = machine === undefined ? undefined : readProcessStat(pid);
  return life === undefined ? null : `${machine}/${pid}/${life.since}`;
}

/**
 * True only if `location` is on this machine and its process has certainly ended. False whenever that is
 * unknown.
 */
export function hasEnded(location: string | null): boolean {
  const [, where, pid, since] = /^(.+)\/(\d+)\/(\d+)$/.exec(location ?? "") ?? [];
  if (where === undefined || where !== machine) return false;
  if (!exists(Number(pid))) return true;
  const life = readProcessStat(Number(pid));
  return life !== undefined && (life.since !== since || life.isOver);
}

/** This process. Its name is random, because addresses and process ids are reused. */
export const thisProcess: { readonly name: string; readonly location: string | null } = Object.freeze({
  name: randomToken().slice(0, 16),
  location: locateProcess(process.pid),
});

// Asks the kernel instead of /proc, which may hide the processes of other users.
function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

// The command name in brackets may contain anything; the fields after it are numbers. A zombie counts as
// ended.
function readProcessStat(pid: number): { readonly since: string; readonly isOver: boolean } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state = "", ...numbers] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const since = numbers[18];
    return since === undefined ? undefined : { since, isOver: state === "Z" || state === "X" };
  } catch {
    return undefined;
  }
}

/** CPU, memory and event-loop delay of this process. */
export interface ProcessFigures {
  /** Milliseconds since the Unix epoch. */
  readonly startedMs: number;
  readonly cpuMs: number;
  readonly residentBytes: number;
  readonly heapBytes: number;
  /** Event-loop delay since the last `read()`: maximum and 99th percentile. */
  readonly lagMaxMs: number;
  readonly lagP99Ms: number;
}

const RESOLUTION_MS = 20;

/** Measures the delay of the event loop between `start` and `stop`. */
export class ProcessWatch {
  readonly #delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  readonly #startedMs = Date.now() - process.uptime() * 1_000;

  start(): void {
    this.#delay.enable();
  }

  stop(): void {
    this.#delay.disable();
  }

  read(): ProcessFigures {
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    const [lagMaxMs, lagP99Ms] = [toLagMs(this.#delay.max), toLagMs(this.#delay.percentile(99))];
    this.#delay.reset();
    return {
      startedMs: this.#startedMs,
      cpuMs: (user + system) / 1_000,
      residentBytes: rss,
      heapBytes: heapUsed,
      lagMaxMs,
      lagP99Ms,
    };
  }
}

// The monitor measures the time between two of its ticks, which includes its own interval.
function toLagMs(nanoseconds: number): number {
  return Math.max(0, nanoseconds / 1e6 - RESOLUTION_MS);
}

/**
 * Named moments that a room announces ("batch.published", "lane.leased"). Production ignores them; a test
 * passes `TestSignals` and waits for a moment instead of sleeping.
 */
export interface Signals<Name extends string = string> {
  emit(name: Name, detail?: unknown): void;
}

export const silentSignals: Signals = Object.freeze({ emit: () => undefined });

export interface WaitForSignal {
  /** Accepts only signals whose detail passes. Default: any. */
  readonly where?: (detail: unknown) => boolean;
  /** The wait in milliseconds after which the promise rejects. Default 10 000. */
  readonly timeoutMs?: number;
}

interface Waiter {
  readonly name: string;
  readonly accepts: (detail: unknown) => boolean;
  readonly take: (detail: unknown) => void;
}

/** Signals that a test can wait for. Each emitted signal satisfies one wait, including a later one. */
export class TestSignals<Name extends string = string> implements Signals<Name> {
  #unclaimed: { readonly name: string; readonly detail: unknown }[] = [];
  readonly #waiters = new Set<Waiter>();
  readonly #counts = new Map<string, number>();

  emit(name: Name, detail?: unknown): void {
    this.#counts.set(name, this.count(name) + 1);
    for (const waiter of this.#waiters) {
      if (waiter.name === name && waiter.accepts(detail)) return waiter.take(detail);
    }
    this.#unclaimed.push({ name, detail });
  }

  /** Counts how often `name` has been emitted. */
  count(name: Name): number {
    return this.#counts.get(name) ?? 0;
  }

  /** Resolves with the detail of the first matching signal that no other wait has taken. */
  waitFor(name: Name, options: WaitForSignal = {}): Promise<unknown> {
    const accepts = options.where ?? (() => true);
    const index = this.#unclaimed.findIndex((signal) => signal.name === name && accepts(signal.detail));
    if (index >= 0) return Promise.resolve(this.#unclaimed.splice(index, 1)[0]?.detail);
    return this.#next(name, accepts, options.timeoutMs ?? 10_000);
  }

  /** Drops signals that were emitted and not waited for. */
  clear(): void {
    this.#unclaimed = [];
  }

  #next(name: Name, accepts: Waiter["accepts"], timeoutMs: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const cancel = after(timeoutMs, () => {
        this.#waiters.delete(waiter);
        reject(new Error(`No signal "${name}" within ${timeoutMs} ms; seen: ${this.#describeUnclaimed()}.`));
      });
      const waiter: Waiter = {
        name,
        accepts,
        take: (detail) => {
          cancel();
          this.#waiters.delete(waiter);
          resolve(detail);
        },
      };
      this.#waiters.add(waiter);
    });
  }

  #describeUnclaimed(): string {
    return [...this.#counts].map(([name, count]) => `${name} × ${count}`).join(", ") || "none";
  }
}
