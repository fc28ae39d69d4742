import { after, type CancelTimer } from "../runtime/index.ts";
import {
  notifyStatement,
  notify,
  onTransactionEnd,
  type AfterCommitStatement,
  type Database,
} from "../storage/index.ts";

export interface WakeUpOptions {
  readonly database: Database;
  readonly channel: string;
  /** The relay of this process, if it has one: true when all these lanes are its own and nobody else need hear. */
  readonly local: (lanes: readonly number[]) => boolean;
  /** The same without telling it anything; needed only where hints shall travel behind a COMMIT. */
  readonly owns?: (lanes: readonly number[]) => boolean;
}

/** A transaction whose end we are not told of may commit at any time, so the hints come at growing distances. */
const LATER_MS = [1, 4, 16, 64, 256];
const QUIET_MS = 2;
/** Under load: a relay lingers then anyway, and each hint takes processor time from those who write. */
const MAX_QUIET_MS = 10;
const MAX_LANES_PER_HINT = 64;

/**
 * Tells relays where to look. A hint travels right behind the COMMIT or by a session of its own, never in the business
 * transaction; those that follow are gathered for a moment. A lost hint costs at most one poll interval.
 */
export class WakeUp {
  readonly #options: WakeUpOptions;
  readonly #lanes = new Set<number>();
  readonly #later = new Map<number, Set<number>>();
  readonly #ending = new WeakMap<object, Set<number>>();
  readonly #timers = new Set<CancelTimer>();
  readonly #inFlight = new Set<Promise<unknown>>();
  #quiet = false;
  #quietMs = QUIET_MS;
  #gathered = 0;
  #closed = false;

  constructor(options: WakeUpOptions) {
    this.#options = options;
  }

  /** The hint for these lanes as it may travel right behind their COMMIT; undefined when it has to wait, or nobody else need hear. */
  afterword(lanes: Iterable<number>): AfterCommitStatement | undefined {
    if (this.#closed || this.#quiet) return undefined;
    const all = [...new Set(lanes)];
    if (all.length === 0 || this.#options.owns?.(all) !== false) return undefined;
    this.#beQuiet();
    const { channel } = this.#options;
    return { ...notifyStatement(channel, encodeHint(all)), onSent: (answered) => this.#follow(answered) };
  }

  /** These lanes have something committed. `told`: a hint travelled behind the COMMIT, so only this process is left. */
  notifyNow(lanes: Iterable<number>, told = false): void {
    const all = [...new Set(lanes)];
    if (all.length === 0 || this.#closed || this.#options.local(all) || told) return;
    for (const lane of all) this.#lanes.add(lane);
    if (this.#quiet) this.#gathered += 1;
    else this.#send();
  }

  /** Rows of these lanes were changed by hand, so what their readers remember is no longer true. */
  notifyChanged(lanes: readonly number[]): void {
    this.#notify(`!${lanes.join(",")}`);
  }

  /** These lanes may have something soon, or never: when `tx`, a transaction of the caller's, has ended. */
  notifySoon(lanes: Iterable<number>, tx?: object): void {
    const all = new Set(lanes);
    if (this.#closed || all.size === 0 || this.#notifyAtEnd(all, tx)) return;
    for (const delayMs of LATER_MS) {
      const waiting = this.#later.get(delayMs);
      if (waiting !== undefined) for (const lane of all) waiting.add(lane);
      else this.#schedule(delayMs, new Set(all));
    }
  }

  /** Sends no more hints and waits for those on their way: they hold a connection. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const cancel of this.#timers) cancel();
    this.#timers.clear();
    this.#later.clear();
    await Promise.all(this.#inFlight);
  }

  #notifyAtEnd(lanes: Set<number>, tx: object | undefined): boolean {
    if (tx === undefined) return false;
    const known = this.#ending.get(tx);
    if (known !== undefined) for (const lane of lanes) known.add(lane);
    else if (onTransactionEnd(tx, () => this.#onTransactionEnd(tx))) this.#ending.set(tx, lanes);
    else return false;
    return true;
  }

  #onTransactionEnd(tx: object): void {
    const lanes = this.#ending.get(tx) ?? [];
    this.#ending.delete(tx);
    this.notifyNow(lanes);
  }

  #schedule(delayMs: number, lanes: Set<number>): void {
    this.#later.set(delayMs, lanes);
    const cancel = after(
      delayMs,
      () => {
        this.#timers.delete(cancel);
        this.#later.delete(delayMs);
        this.notifyNow(lanes);
      },
      { unref: true },
    );
    this.#timers.add(cancel);
  }

  #send(): void {
    const payload = encodeHint([...this.#lanes]);
    this.#lanes.clear();
    this.#notify(payload);
    this.#beQuiet();
  }

  #beQuiet(): void {
    this.#quiet = true;
    this.#gathered = 0;
    const cancel = after(
      this.#quietMs,
      () => {
        this.#timers.delete(cancel);
        this.#quiet = false;
        this.#quietMs = quietAfter(this.#quietMs, this.#gathered);
        if (this.#lanes.size > 0 && !this.#closed) this.#send();
      },
      { unref: true },
    );
    this.#timers.add(cancel);
  }

  #notify(payload: string): void {
    this.#follow(notify(this.#options.database, this.#options.channel, payload));
  }

  #follow(answered: Promise<unknown>): void {
    const sending = answered.catch(() => undefined).finally(() => this.#inFlight.delete(sending));
    this.#inFlight.add(sending);
  }
}

/** Grows while hints come closer together than the shortest pause, and shrinks when they do not. */
export function quietAfter(quietMs: number, gathered: number): number {
  const dense = gathered * QUIET_MS >= quietMs;
  return dense ? Math.min(MAX_QUIET_MS, quietMs * 2) : Math.max(QUIET_MS, quietMs / 2);
}

/** Where those who work on a schema listen. */
export function wakeUpChannel(schema: string): string {
  return `sagabox_${schema}`.slice(0, 63); // the longest name a channel may have
}

/** Hints for rows of many lanes that somebody has written or changed by hand, as few as will do. */
export function encodeChangedHints(lanes: Iterable<number>): readonly string[] {
  const all = [...new Set(lanes)];
  const hints: string[] = [];
  for (let from = 0; from < all.length; from += MAX_LANES_PER_HINT) {
    hints.push(`!${all.slice(from, from + MAX_LANES_PER_HINT).join(",")}`);
  }
  return hints;
}

/** What travels in a notification: the table's letter and the lanes, or a star for all. */
export function encodeHint(lanes: readonly number[]): string {
  return lanes.length > MAX_LANES_PER_HINT ? "*" : lanes.join(",");
}

export interface Hint {
  /** Undefined means everywhere. */
  readonly lanes: readonly number[] | undefined;
  /** Rows were changed by hand: what is held back there must be looked at again. */
  readonly changed: boolean;
}

export function decodeHint(payload: string): Hint {
  const changed = payload.startsWith("!");
  const list = changed ? payload.slice(1) : payload;
  return { lanes: /^\d+(,\d+)*$/.test(list) ? list.split(",").map(Number) : undefined, changed };
}
