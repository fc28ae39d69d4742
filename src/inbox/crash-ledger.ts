import { errorText } from "../errors/index.ts";
import { after, type CancelTimer, Loop, randomToken, type Service, thisProcess } from "../runtime/index.ts";
import { toArrayLiteral } from "../storage/index.ts";
import type { InboxEngine } from "./engine.ts";
import { persist } from "./persist.ts";

export interface CrashLedgerOptions {
  readonly engine: InboxEngine;
  /** Names this process for people. */
  readonly worker: string;
  /** After this silence a process counts as dead. Shorter than the lease of the transport's lanes. Default 20,000. */
  readonly leaseMs?: number;
}

/** How often a process died while it ran the message alone, for each suspect. */
export type Suspects = ReadonlyMap<string, number>;

/** Hears when this process could not show itself alive for a whole lease, and when it could again. */
export interface LeaseListener {
  readonly onLapse: () => void;
  readonly onRecovery: () => void;
}

/** Says when this process can no longer show itself alive. */
export interface Lease {
  /** Calls `onLapse` at once if the lease has lapsed already. Returns how to stop listening. */
  onLease(listener: LeaseListener): () => void;
}

const NO_SUSPECTS: Suspects = new Map();
/** Even of a short lease: a busy machine is not a dead one. */
const MIN_BEAT_MS = 500;

/**
 * Finds messages that kill the process. Before messages run, one row lists their ids; when a process is gone, what
 * its rows still list is suspect. A suspect runs with nothing else beside it in its process, and the row says so:
 * only if that process dies as well is the message charged. Its former neighbours run alone once, and are free.
 */
export class CrashLedger implements Service, Lease {
  readonly #engine: InboxEngine;
  readonly #worker: string;
  readonly #leaseMs: number;
  readonly #gate = new SoloGate();
  readonly #heartbeat: Loop;
  readonly #listeners = new Set<LeaseListener>();
  #lapse: CancelTimer | undefined;
  #hasLapsed = false;
  #member = "";
  #gone = new AbortController();

  constructor({ engine, worker, leaseMs = 20_000 }: CrashLedgerOptions) {
    this.#engine = engine;
    this.#worker = worker;
    this.#leaseMs = leaseMs;
    this.#heartbeat = new Loop({
      step: async () => {
        await this.#beat();
        return leaseMs / 4;
      },
      onError: (error) =>
        engine.observer.emit("storage.failed", {
          doing: "crash ledger",
          error: errorText(error).slice(0, 500),
          retryInMs: 0,
        }),
      maxBackoffMs: leaseMs / 4,
    });
  }

  async start(): Promise<void> {
    if (this.#heartbeat.running) return;
    this.#gone = new AbortController();
    this.#member = `${this.#worker}.${randomToken().slice(0, 12)}`;
    await this.#beat();
    await this.#heartbeat.start();
  }

  /** Stop the consumers first: a row that is left behind says that the process died. */
  async stop(): Promise<void> {
    if (!this.#heartbeat.running) return;
    this.#gone.abort();
    this.#lapse?.();
    await this.#heartbeat.stop();
    await this.#engine.database.run(this.#engine.sql.leave, [this.#member]);
  }

  /** Other processes take this one for dead when it cannot reach the database; a broker does not. */
  onLease(listener: LeaseListener): () => void {
    this.#listeners.add(listener);
    if (this.#hasLapsed) listener.onLapse();
    return () => this.#listeners.delete(listener);
  }

  /** Turns what dead processes were running into suspects. Call it when a member is found to be gone. */
  async notice(): Promise<void> {
    const { database, sql, observer } = this.#engine;
    const { rows } = await database.run<{ consumer: string; event_id: string; crashes: number }>(sql.notice, [
      this.#leaseMs,
    ]);
    for (const { consumer, event_id: id, crashes } of rows) {
      observer.emit("consumer.suspect", { consumer, id, crashes });
    }
  }

  /** Writes down everything the consumer holds, before any of it runs, and tells which of it is suspect. */
  async list(consumer: string, ids: readonly string[]): Promise<Suspects> {
    const first = await this.#write(consumer, ids, false);
    if (!first.deaths) return first.suspects;
    await this.notice();
    return (await this.#write(consumer, ids, false)).suspects;
  }

  /** Resolves with the way out, once no suspect runs. */
  enter(): Promise<() => void> {
    return this.#gate.enter();
  }

  /** Runs `work` with nothing beside it, and with a row that says so; then lists what the consumer `holds` again. */
  async runAlone<T>(
    { consumer, id, holds }: { consumer: string; id: string; holds: () => readonly string[] },
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    const leave = await this.#gate.enterAlone();
    const write = (ids: readonly string[], alone: boolean): Promise<boolean> =>
      persist(this.#engine.observer, "crash ledger", this.#gone.signal, () =>
        this.#write(consumer, ids, alone),
      );
    try {
      return (await write([id], true)) ? await work() : undefined;
    } finally {
      await write(holds(), false);
      leave();
    }
  }

  async #beat(): Promise<void> {
    const { database, sql } = this.#engine;
    const deadlineMs = Math.max(MIN_BEAT_MS, this.#leaseMs / 3); // time for another connection if this one hangs
    const params = [this.#member, this.#worker, this.#leaseMs, thisProcess.name];
    await database.run(sql.beat, params, { deadlineMs });
    this.#onRenewed();
    await this.notice();
  }

  #onRenewed(): void {
    this.#watchLease(this.#engine.leaseMs, () => {
      // After a pause of this process it had no chance to say that it is alive: it gets one.
      this.#heartbeat.wake();
      this.#watchLease(this.#engine.leaseMs / 4, () => {
        this.#hasLapsed = true;
        for (const { onLapse } of this.#listeners) onLapse();
      });
    });
    if (!this.#hasLapsed) return;
    this.#hasLapsed = false;
    for (const { onRecovery } of this.#listeners) onRecovery();
  }

  #watchLease(ms: number, lapsed: () => void): void {
    this.#lapse?.();
    if (Number.isFinite(ms)) this.#lapse = after(ms, lapsed, { unref: true });
  }

  async #write(
    consumer: string,
    ids: readonly string[],
    alone: boolean,
  ): Promise<{ deaths: boolean; suspects: Suspects }> {
    const { database, sql } = this.#engine;
    const params = [this.#member, consumer, toArrayLiteral(ids), alone];
    const { rows } = await database.run<{ deaths: boolean; suspects: string }>(sql.list, params);
    const { deaths = false, suspects = "{}" } = rows[0] ?? {};
    if (suspects === "{}") return { deaths, suspects: NO_SUSPECTS };
    return { deaths, suspects: new Map(Object.entries(JSON.parse(suspects) as Record<string, number>)) };
  }
}

/** Many may be inside together, or one alone. First come, first served, so that neither kind starves the other. */
export class SoloGate {
  readonly #line: { readonly alone: boolean; readonly enter: () => void }[] = [];
  #inside = 0;
  #alone = false;

  /** Resolves with the way out. */
  enter(): Promise<() => void> {
    return this.#pass(false);
  }

  /** Resolves when everybody else has left; nobody comes in until the way out is taken. */
  enterAlone(): Promise<() => void> {
    return this.#pass(true);
  }

  async #pass(alone: boolean): Promise<() => void> {
    if (this.#line.length > 0 || !this.#admits(alone)) {
      await new Promise<void>((enter) => this.#line.push({ alone, enter }));
    } else this.#admit(alone);
    let inside = true;
    return () => {
      if (inside) this.#leave(alone);
      inside = false;
    };
  }

  #admits(alone: boolean): boolean {
    return !this.#alone && (!alone || this.#inside === 0);
  }

  #admit(alone: boolean): void {
    this.#inside += 1;
    if (alone) this.#alone = true;
  }

  #leave(alone: boolean): void {
    this.#inside -= 1;
    if (alone) this.#alone = false;
    for (let next = this.#line[0]; next !== undefined && this.#admits(next.alone); next = this.#line[0]) {
      this.#line.shift();
      this.#admit(next.alone);
      next.enter();
    }
  }
}
