import type { Clock } from "../runtime/index.ts";

export interface RepeatGuardOptions {
  readonly clock: Clock;
  /** How many equal lines pass in one window. */
  readonly burst: number;
  readonly windowMs: number;
  /** How many kinds of line are told apart; all others share one allowance. */
  readonly kinds: number;
}

interface Kind {
  startedMs: number;
  passed: number;
  suppressed: number;
}

/** Lets a few equal lines pass in each window and counts the rest, so that a broken database cannot fill a disk. */
export class RepeatGuard {
  readonly #options: RepeatGuardOptions;
  readonly #kinds = new Map<string, Kind>();

  constructor(options: RepeatGuardOptions) {
    this.#options = options;
  }

  /** How many equal lines were held back since the last that passed; undefined when this one is held back too. */
  admit(key: string): number | undefined {
    const { clock, burst, windowMs } = this.#options;
    const nowMs = clock.monotonicMs();
    const kind = this.#kind(key, nowMs);
    if (nowMs - kind.startedMs >= windowMs) {
      kind.startedMs = nowMs;
      kind.passed = 0;
    }
    if (kind.passed >= burst) {
      kind.suppressed += 1;
      return undefined;
    }
    const { suppressed } = kind;
    kind.passed += 1;
    kind.suppressed = 0;
    return suppressed;
  }

  #kind(key: string, nowMs: number): Kind {
    const known = this.#kinds.get(key);
    if (known !== undefined) return known;
    if (this.#kinds.size >= this.#options.kinds) {
      this.#forgetQuiet(nowMs);
      if (this.#kinds.size >= this.#options.kinds && key !== OTHER) return this.#kind(OTHER, nowMs);
    }
    const kind = { startedMs: nowMs, passed: 0, suppressed: 0 };
    this.#kinds.set(key, kind);
    return kind;
  }

  #forgetQuiet(nowMs: number): void {
    for (const [key, kind] of this.#kinds) {
      if (kind.suppressed === 0 && nowMs - kind.startedMs >= this.#options.windowMs) this.#kinds.delete(key);
    }
  }
}

const OTHER = "\u0000other";
