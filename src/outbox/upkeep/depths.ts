import { systemClock, withDeadline } from "../../runtime/index.ts";
import { quoteSchema, SessionHolder, type Database } from "../../storage/index.ts";
import { depthStatements } from "./statements.ts";

export type DepthByTopic = ReadonlyMap<string, number>;

export interface SampledTopic {
  readonly topic: string;
  readonly seen: number;
  /** How much of the table was read. */
  readonly percent: number;
}

const FRESH_MS = 1_000;
const PATIENCE_MS = 500;
const TRUSTED_ROWS = 10;

/** Pure. So few rows in a sample may be chance: they are counted, not multiplied. */
export function estimate({ seen, percent }: SampledTopic): number {
  return percent >= 100 || seen < TRUSTED_ROWS ? seen : Math.round((seen * 100) / percent);
}

/**
 * How many messages wait per topic, unsent or not handled yet (once for each consumer group), read at most once a second for all topics together. Small backlogs are counted;
 * of one beyond some 35,000 messages a part is read and the rest inferred, so the cost has a bound. It has a connection of
 * its own: whoever asks may hold one of the pool's, and must not wait for a second.
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

  /** Never fails and never waits long: nobody is turned away because counting is slow or impossible. */
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
