import { systemClock, withDeadline } from "../../runtime/index.ts";
import { quoteSchema, SessionHolder, type Database } from "../../storage/index.ts";
import { depthStatements } from "./statements.ts";

export type DepthByTopic = ReadonlyMap<string, number>;

export interface SampledTopic {
  readonly topic: string;
  readonly seen: number;
  /** Percentage of the table that was read. */
  readonly percent: number;
}

const FRESH_MS = 1_000;
const PATIENCE_MS = 500;
const TRUSTED_ROWS = 10;

/** Pure: extrapolates a sample. Fewer than ten rows may be chance: they are counted, not multiplied. */
export function estimate({ seen, percent }: SampledTopic): number {
  return percent >= 100 || seen < TRUSTED_ROWS ? seen : Math.round((seen * 100) / percent);
}

/**
 * Counts waiting messages per topic: unsent, or not yet handled by a consumer group. Reads at most once a
 * second for all topics. Backlogs up to about 35,000 messages are counted, larger ones are sampled, so the
 * cost is bounded. It uses a connection of its own, because the caller may hold one of the pool and must not
 * wait for a second.
 */
export class Depths {
  readonly #holder: SessionHolder;
  readonly #sql: ReturnType<typeof depthStatements>;
  #known: DepthByTopic = new Map();
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;

  constructor(database: Database, schema: string) {
    this.#holder = new SessionHolder(database, "admission");
    this.#sql = depthStatements(quoteSchema(schema));
  }

  /** Never fails and never waits long: a slow or failed count must not reject messages. */
  async now(): Promise<DepthByTopic> {
    if (systemClock.monotonicMs() - this.#readAtMs < FRESH_MS) return this.#known;
    this.#reading ??= this.#read().finally(() => (this.#reading = undefined));
    const read = this.#reading.then(() => this.#known);
    return withDeadline(read, PATIENCE_MS, () => NOTHING_KNOWN).catch(() => NOTHING_KNOWN);
  }

  async close(): Promise<void> {
    await this.#reading?.catch(() => undefined);
    await this.#holder.close();
  }

  async #read(): Promise<void> {
    const session = await this.#holder.get();
    const { rows } = await session.run<SampledTopic>(this.#sql.depths);
    const known = new Map<string, number>();
    for (const row of rows) known.set(row.topic, (known.get(row.topic) ?? 0) + estimate(row));
    this.#known = known;
    this.#readAtMs = systemClock.monotonicMs();
  }
}

const NOTHING_KNOWN: DepthByTopic = new Map();
