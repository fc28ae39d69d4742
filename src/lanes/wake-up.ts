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
  /**
   * Wakes the relay of this process. Returns true if it owns all these lanes, so that no other worker needs a hint.
   */
  readonly local: (lanes: readonly number[]) => boolean;
  /**
   * Returns whether the relay of this process owns all these lanes, without waking it. Needed only for hints sent
   * with a COMMIT.
   */
  readonly owns?: (lanes: readonly number[]) => boolean;
}

/** Delays of the hints for a transaction whose end cannot be observed, in milliseconds. */
const LATER_MS = [1, 4, 16, 64, 256];
const QUIET_MS = 2;
/** The longest pause between hints, under load: relays are polling then anyway, and each hint costs CPU time. */
const MAX_QUIET_MS = 10;
const MAX_LANES_PER_HINT = 64;

/**
 * Sends hints to relays about lanes with new rows. A hint is sent together with the COMMIT or on its own
 * connection, never inside the business transaction. Hints that follow shortly after another are merged. A lost
 * hint costs at most one poll interval.
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

  /**
   * Returns the hint to send together with the COMMIT; undefined if hints are paused or no other worker needs it.
   */
  hintForCommit(lanes: Iterable<number>): AfterCommitStatement | undefined {
    if (this.#closed || this.#quiet) return undefined;
    const all = [...new Set(lanes)];
    if (all.length === 0 || this.#options.owns?.(all) !== false) return undefined;
    this.#beQuiet();
    const { channel } = this.#options;
    return { ...notifyStatement(channel, encodeHint(all)), onSent: (answered) => this.#follow(answered) };
  }

  /** Announces committed rows. With `wasSent` a hint was sent with the COMMIT, so only this process is woken. */
  notifyNow(lanes: Iterable<number>, wasSent = false): void {
    const all = [...new Set(lanes)];
    if (all.length === 0 || this.#closed || this.#options.local(all) || wasSent) return;
    for (const lane of all) this.#lanes.add(lane);
    if (this.#quiet) this.#gathered += 1;
    else this.#send();
  }

  /**
   * Announces that rows of these lanes were changed by an operator, so that readers drop what they remember of
   * them.
   */
  notifyChanged(lanes: readonly number[]): void {
    this.#notify(`!${lanes.join(",")}`);
  }

  /**
   * Announces rows that are committed when `tx`, a transaction of the caller, ends; without `tx`, repeats the hint
   * for a while.
   */
  notifySoon(lanes: Iterable<number>, tx?: object): void {
    const all = new Set(lanes);
    if (this.#closed || all.size === 0 || this.#notifyAtEnd(all, tx)) return;
    for (const delayMs of LATER_MS) {
      const waiting = this.#later.get(delayMs);
      if (waiting !== undefined) for (const lane of all) waiting.add(lane);
      else this.#schedule(delayMs, new Set(all));
    }
  }

  /** Stops sending hints and waits for those in flight, because they hold a connection. */
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

/** Doubles the pause while hints arrive faster than the shortest pause, and halves it otherwise. */
export function quietAfter(quietMs: number, gathered: number): number {
  const dense = gathered * QUIET_MS >= quietMs;
  return dense ? Math.min(MAX_QUIET_MS, quietMs * 2) : Math.max(QUIET_MS, quietMs / 2);
}

/** The notification channel of a schema. */
export function wakeUpChannel(schema: string): string {
  return `sagabox_${schema}`.slice(0, 63); // PostgreSQL's limit for identifiers
}

/** Encodes hints about rows that an operator wrote or changed, in as few notifications as possible. */
export function encodeChangedHints(lanes: Iterable<number>): readonly string[] {
  const all = [...new Set(lanes)];
  const hints: string[] = [];
  for (let from = 0; from < all.length; from += MAX_LANES_PER_HINT) {
    hints.push(`!${all.slice(from, from + MAX_LANES_PER_HINT).join(",")}`);
  }
  return hints;
}

/** Encodes lanes as a notification payload; `*` means all lanes. */
export function encodeHint(lanes: readonly number[]): string {
  return lanes.length > MAX_LANES_PER_HINT ? "*" : lanes.join(",");
}

export interface Hint {
  /** Undefined means all lanes. */
  readonly lanes: readonly number[] | undefined;
  /** Rows were changed by an operator: held streams must be read again. */
  readonly changed: boolean;
}

export function decodeHint(payload: string): Hint {
  const changed = payload.startsWith("!");
  const list = changed ? payload.slice(1) : payload;
  return { lanes: /^\d+(,\d+)*$/.test(list) ? list.split(",").map(Number) : undefined, changed };
}
