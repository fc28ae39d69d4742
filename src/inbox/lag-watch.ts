import { errorText } from "../errors/index.ts";
import { type FailedRound, PeriodicService, withDeadline } from "../runtime/index.ts";
import { type Database, quoteSchema, toArrayLiteral } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { completeLags, type Lag, type PlannedGroup, type Transport } from "../transport/index.ts";
import { lagStatements } from "./statements.ts";

export interface LagWatchOptions {
  readonly database: Database;
  readonly schema: string;
  readonly transport: Transport;
  /** The consumers of the service, also those that run in other processes. */
  readonly groups: readonly PlannedGroup[];
  readonly observer: Observer;
  /** How often each consumer is measured, in milliseconds. Default 15,000. */
  readonly everyMs?: number;
}

const MEASURE_EVERY_MS = 15_000;
/** A stored measurement that is older than this many intervals says nothing about now. */
const FRESH_INTERVALS = 4;
/** A measurement that is older than this is not shown, in milliseconds. */
export const MAX_LAG_AGE_MS = FRESH_INTERVALS * MEASURE_EVERY_MS;
const MAX_MEASURE_MS = 5_000;
const MAX_SKIPPED_ROUNDS = 20;

/**
 * Measures how far the consumers of a service are behind and emits it. Each consumer is measured by one worker at a time,
 * which stores the result; every worker emits what is stored.
 */
export class LagWatch extends PeriodicService {
  readonly #options: LagWatchOptions;
  readonly #everyMs: number;
  /** Failed measurements in a row, and how many rounds to leave to other workers after them. */
  #failures = 0;
  #skippedRounds = 0;
  /** Consumers and topics in the metrics, as JSON. */
  #emitted: ReadonlySet<string> = new Set();

  constructor(options: LagWatchOptions) {
    const { everyMs = MEASURE_EVERY_MS } = options;
    super({ everyMs, backoff: { firstMs: everyMs, maxMs: everyMs } });
    this.#options = options;
    this.#everyMs = everyMs;
  }

  protected override async runRound(): Promise<void> {
    if (this.#skippedRounds > 0) this.#skippedRounds -= 1;
    else await this.#measure(await this.#claim());
    await this.#emitStored();
  }

  // A row that is new is claimed without a measurement: the consumers are about to subscribe.
  async #claim(): Promise<readonly PlannedGroup[]> {
    const { database, schema, transport, groups } = this.#options;
    const { claim } = lagStatements(quoteSchema(schema));
    const names = toArrayLiteral(groups.map(({ group }) => group));
    const params = [names, transport.name, this.#everyMs * 0.8];
    const { rows } = await database.run<{ consumer: string }>(claim, params);
    const claimed = new Set(rows.map(({ consumer }) => consumer));
    return groups.filter(({ group }) => claimed.has(group));
  }

  // A failure is not stored: another worker may be allowed to ask the broker, or reach it. If none does, the last
  // measurement is soon too old.
  async #measure(groups: readonly PlannedGroup[]): Promise<void> {
    if (groups.length === 0) return;
    const { database, schema, transport, observer } = this.#options;
    const reading = transport.lags?.(groups) ?? Promise.resolve([]);
    const reported = await withDeadline(reading, MAX_MEASURE_MS, () => {
      throw new Error(`no answer within ${MAX_MEASURE_MS} ms`);
    }).catch((error: unknown) => {
      this.#failures += 1;
      this.#skippedRounds = Math.min(MAX_SKIPPED_ROUNDS, 2 ** this.#failures - 1);
      observer.emit("lag.unknown", { failures: this.#failures, error: errorText(error) });
      return undefined;
    });
    if (reported === undefined) return;
    this.#failures = 0;
    const lags = completeLags(groups, reported);
    await database.run(lagStatements(quoteSchema(schema)).store, [
      toArrayLiteral(groups.map(({ group }) => group)),
      toArrayLiteral(groups.map(({ group }) => storedText(lags.filter((lag) => lag.group === group)))),
      transport.name,
    ]);
  }

  async #emitStored(): Promise<void> {
    const { database, schema, groups } = this.#options;
    const names = groups.map(({ group }) => group);
    const emitted = new Set<string>();
    for (const { consumer, ageMs, lags } of await readStoredLags(database, schema, names)) {
      if (ageMs === null || ageMs > FRESH_INTERVALS * this.#everyMs) continue;
      for (const lag of lags) {
        emitted.add(JSON.stringify([consumer, lag.topic]));
        this.#emit(consumer, lag);
      }
    }
    for (const key of this.#emitted) if (!emitted.has(key)) this.#hide(key);
    this.#emitted = emitted;
  }

  #hide(key: string): void {
    const [consumer, topic] = JSON.parse(key) as [string, string | null];
    this.#emit(consumer, { topic, waiting: "unknown", oldestAgeSeconds: "unknown" });
  }

  #emit(consumer: string, { topic, waiting, oldestAgeSeconds }: Omit<Lag, "group">): void {
    this.#options.observer.emit("lag.measured", {
      consumer,
      topic,
      waiting: waiting === "unknown" ? null : waiting,
      oldestAgeMs: oldestAgeSeconds === "unknown" ? null : Math.round(oldestAgeSeconds * 1_000),
    });
  }

  protected override onFailure({ error, failuresInARow: failures }: FailedRound): void {
    this.#options.observer.emit("lag.unknown", { failures, error: errorText(error) });
    // The database may be the one that fails, so nothing newer will replace the metrics.
    if (failures < FRESH_INTERVALS) return;
    for (const key of this.#emitted) this.#hide(key);
    this.#emitted = new Set();
  }
}

/** The last measurement of a consumer. */
export interface StoredLags {
  readonly consumer: string;
  readonly transport: string;
  /** Milliseconds since it was measured; null if it never was. */
  readonly ageMs: number | null;
  readonly lags: readonly Omit<Lag, "group">[];
}

/** Reads the last measurement of these consumers, or of all. */
export async function readStoredLags(
  database: Database,
  schema: string,
  consumers?: readonly string[],
): Promise<readonly StoredLags[]> {
  const names = consumers === undefined ? null : toArrayLiteral(consumers);
  const { rows } = await database.run<StoredRow>(lagStatements(quoteSchema(schema)).read, [names]);
  return rows.map(({ consumer, transport, age_ms: ageMs, lags }) => ({
    consumer,
    transport,
    ageMs,
    lags: (JSON.parse(lags) as StoredLag[]).map(fromStored),
  }));
}

interface StoredRow {
  readonly consumer: string;
  readonly transport: string;
  readonly age_ms: number | null;
  readonly lags: string;
}

/** An entry of the column `lags`. Null is unknown. */
interface StoredLag {
  readonly topic: string | null;
  readonly waiting: number | null;
  readonly isEstimate?: true;
  readonly oldestAgeSeconds: number | null;
}

function storedText(lags: readonly Lag[]): string {
  const entries = lags.map(({ topic, waiting, isEstimate, oldestAgeSeconds }): StoredLag => ({
    topic,
    waiting: waiting === "unknown" ? null : waiting,
    ...(isEstimate === true && { isEstimate }),
    oldestAgeSeconds: oldestAgeSeconds === "unknown" ? null : oldestAgeSeconds,
  }));
  return JSON.stringify(entries);
}

function fromStored({ waiting, oldestAgeSeconds, ...rest }: StoredLag): Omit<Lag, "group"> {
  return { ...rest, waiting: waiting ?? "unknown", oldestAgeSeconds: oldestAgeSeconds ?? "unknown" };
}
