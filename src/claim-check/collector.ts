import { errorText, isSagaboxError } from "../errors/index.ts";
import { type FailedRound, PeriodicService } from "../runtime/index.ts";
import { quoteSchema, SQLSTATE, sqlState, toArrayLiteral } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { BlobHome, BlobStore } from "./blob-store.ts";
import { collectorStatements } from "./statements.ts";

export interface CollectorParts extends BlobHome {
  /** The stores by id, including those that this bus only reads from: it may have written to them before. */
  readonly stores: ReadonlyMap<string, BlobStore>;
  readonly retentionMs: number;
  readonly graceMs: number;
  readonly observer: Observer;
}

export interface CollectReport {
  /** Deleted blobs: unused and past the retention, or uploads without progress during the grace period. */
  readonly unneeded: number;
  /** Deleted objects without a row, left by a rolled-back transaction or a crash. */
  readonly orphaned: number;
  /** False if a store failed or the collector was stopped. The next round continues. */
  readonly finished: boolean;
}

interface SweepResult {
  readonly count: number;
  readonly finished: boolean;
}

/** The number of deleted objects, and whether an open transaction may still commit some of the others. */
interface DaySweepResult {
  readonly count: number;
  readonly hasOpen: boolean;
}

interface DoomedRow {
  readonly key: string;
  readonly store: string;
}

const EVERY_MS = 3_600_000;
const PAGE = 500;
/** Keys contain the day by the writer's clock, so the last days are checked again. */
const DAYS_RECHECKED = 3;
const DAY_MS = 86_400_000;
/** An open transaction holds its keys for long, so a short lock timeout is enough to detect a held key. */
const PROBE_WAIT_MS = 20;
const neverAborted = new AbortController().signal;

/**
 * Deletes unused blobs. It first marks a blob's row as doomed, so that no message can begin to use it, then deletes the
 * blob from its store, then deletes the row. After a crash, the doomed row is left for the next round. Two collectors may
 * run at once: their deletes are idempotent. Finally it lists the stores and deletes objects that have no row.
 */
export class Collector extends PeriodicService {
  readonly #parts: CollectorParts;
  readonly #sql: ReturnType<typeof collectorStatements>;

  constructor(parts: CollectorParts) {
    super({ everyMs: EVERY_MS });
    this.#parts = parts;
    this.#sql = collectorStatements(quoteSchema(parts.schema));
  }

  async collect(signal: AbortSignal = neverAborted): Promise<CollectReport> {
    await this.#markDoomed(signal);
    const unneeded = await this.#deleteDoomed(signal);
    const orphaned = await this.#sweep(signal);
    return {
      unneeded: unneeded.count,
      orphaned: orphaned.count,
      finished: unneeded.finished && orphaned.finished && !signal.aborted,
    };
  }

  async #markDoomed(signal: AbortSignal): Promise<void> {
    await this.#parts.database.run(this.#sql.doomUnfinished, [this.#parts.graceMs]);
    let after = { stored: "-infinity", key: "" };
    while (!signal.aborted) {
      const last = await this.#markDoomedPage(after);
      if (last === undefined) return;
      after = last;
    }
  }

  async #markDoomedPage(after: { stored: string; key: string }): Promise<typeof after | undefined> {
    const { database, retentionMs } = this.#parts;
    const tx = await database.begin({ idleTimeoutMs: 60_000 });
    try {
      const page = [retentionMs, after.stored, after.key, PAGE];
      const { rows } = await tx.run<{ key: string; stored: string }>(this.#sql.candidates, page);
      if (rows.length > 0) {
        await tx.run(this.#sql.doom, [toArrayLiteral(rows.map(({ key }) => key)), retentionMs]);
      }
      await tx.commit();
      return rows.at(-1);
    } finally {
      await tx.rollback();
    }
  }

  async #deleteDoomed(signal: AbortSignal): Promise<SweepResult> {
    let count = 0;
    let finished = true;
    for (let after = ""; !signal.aborted;) {
      const { rows } = await this.#parts.database.run<DoomedRow>(this.#sql.doomed, [after, PAGE]);
      const last = rows.at(-1);
      if (last === undefined) break;
      after = last.key;
      for (const [id, keys] of groupByStore(rows)) {
        if (await this.#delete(id, keys, "unneeded")) {
          await this.#parts.database.run(this.#sql.forget, [toArrayLiteral(keys)]);
          count += keys.length;
        } else finished = false;
      }
    }
    return { count, finished };
  }

  // Sweeps every store, because this bus may have written to any of them before. Keys begin with the id of this database,
  // so objects of other databases are not touched. A failing store does not stop the sweep of the others.
  async #sweep(signal: AbortSignal): Promise<SweepResult> {
    let count = 0;
    let finished = true;
    for (const store of this.#parts.stores.values()) {
      if (signal.aborted) return { count, finished: false };
      const swept = await this.#sweepStore(store, signal);
      count += swept.count;
      finished &&= swept.finished;
    }
    return { count, finished };
  }

  // Sweeps day by day, from the end of the last round up to the grace period.
  async #sweepStore(store: BlobStore, signal: AbortSignal): Promise<SweepResult> {
    const { database, graceMs } = this.#parts;
    const { rows } = await database.run<{ id: string; day: string; last_day: string; now_ms: number }>(
      this.#sql.sweepFrom,
      [DAYS_RECHECKED, graceMs, store.id],
    );
    const [from] = rows;
    if (from === undefined) return { count: 0, finished: true };
    let count = 0;
    let sweptTo = from.last_day;
    for (const day of listDaysBetween(from.day, from.last_day)) {
      try {
        const swept = await this.#sweepDay(store, `${from.id}/${day}/`, from.now_ms - graceMs, signal);
        count += swept.count;
        if (swept.hasOpen && day < sweptTo) sweptTo = day; // its transaction may still roll back
      } catch (error) {
        this.#reportFailure(store.id, error);
        return { count, finished: false };
      }
      if (signal.aborted) return { count, finished: false };
    }
    await database.run(this.#sql.swept, [store.id, sweptTo]);
    return { count, finished: true };
  }

  async #sweepDay(
    store: BlobStore,
    prefix: string,
    beforeMs: number,
    signal: AbortSignal,
  ): Promise<DaySweepResult> {
    const { database } = this.#parts;
    let count = 0;
    let hasOpen = false;
    let cursor: string | undefined;
    do {
      const page = await store.list(prefix, cursor, neverAborted);
      const old = page.blobs.filter(({ storedAt }) => storedAt.getTime() < beforeMs).map(({ key }) => key);
      const { rows } = await database.run<{ key: string }>(this.#sql.unknown, [toArrayLiteral(old)]);
      const orphans = await this.#findOrphans(rows.map(({ key }) => key));
      hasOpen ||= orphans.length < rows.length;
      if (orphans.length > 0) {
        await store.delete(orphans, neverAborted);
        this.#reportCollected(store.id, orphans.length, "orphaned");
      }
      count += orphans.length;
      cursor = page.next;
    } while (cursor !== undefined && !signal.aborted);
    return { count, hasOpen };
  }

  // A row is written before its object, so a key without a committed row is in an open transaction (prepared ones
  // included) or was rolled back. Only in the second case can its row be inserted again, and then it stays an orphan.
  async #findOrphans(keys: readonly string[]): Promise<readonly string[]> {
    if (keys.length === 0) return [];
    const free = await this.#findFreeKeys(keys);
    if (free !== undefined) return free;
    if (keys.length === 1) return [];
    const half = Math.ceil(keys.length / 2);
    const first = await this.#findOrphans(keys.slice(0, half));
    return [...first, ...(await this.#findOrphans(keys.slice(half)))];
  }

  /** The keys that no transaction holds; undefined if one is held. */
  async #findFreeKeys(keys: readonly string[]): Promise<readonly string[] | undefined> {
    const tx = await this.#parts.database.begin({ idleTimeoutMs: 60_000, lockTimeoutMs: PROBE_WAIT_MS });
    try {
      const { rows } = await tx.run<{ key: string }>(this.#sql.probe, [toArrayLiteral(keys)]);
      return rows.map(({ key }) => key);
    } catch (error) {
      if (sqlState(error) === SQLSTATE.lockNotAvailable) return undefined;
      throw error;
    } finally {
      await tx.rollback();
    }
  }

  async #delete(id: string, keys: readonly string[], reason: "unneeded"): Promise<boolean> {
    const store = this.#parts.stores.get(id);
    if (store === undefined) {
      this.#reportFailure(
        id,
        new Error(`${keys.length} blobs cannot be deleted: this bus does not know their store.`),
      );
      return false;
    }
    try {
      await store.delete(keys, neverAborted);
      this.#reportCollected(id, keys.length, reason);
      return true;
    } catch (error) {
      this.#reportFailure(id, error);
      return false;
    }
  }

  protected override async runRound(signal: AbortSignal): Promise<void> {
    await this.collect(signal);
  }

  protected override onFailure({ error }: FailedRound): void {
    this.#reportFailure([...this.#parts.stores.keys()].join(", "), error);
  }

  #reportCollected(store: string, count: number, reason: "unneeded" | "orphaned"): void {
    this.#parts.observer.emit("payload.collected", { store, count, reason });
  }

  #reportFailure(store: string, error: unknown): void {
    const code = isSagaboxError(error) ? error.code : "UNKNOWN";
    const text = errorText(error);
    this.#parts.observer.emit("payload.failed", {
      store,
      doing: "collecting",
      code,
      error: text.slice(0, 500),
    });
  }
}

function groupByStore(rows: readonly DoomedRow[]): ReadonlyMap<string, readonly string[]> {
  const keys = new Map<string, string[]>();
  for (const { store, key } of rows) keys.set(store, [...(keys.get(store) ?? []), key]);
  return keys;
}

/** Lists the days from `first` to `last`, both included, as YYYY-MM-DD. */
export function listDaysBetween(first: string, last: string): string[] {
  const days: string[] = [];
  for (let at = Date.parse(first); at <= Date.parse(last); at += DAY_MS) {
    days.push(new Date(at).toISOString().slice(0, 10));
  }
  return days;
}
