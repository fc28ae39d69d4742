import { estimateRows, type Sample } from "../../lanes/index.ts";
import { systemClock, withDeadline } from "../../runtime/index.ts";
import { type Database, quoteSchema, SessionHolder } from "../../storage/index.ts";
import { depthStatements } from "./statements.ts";

export type DepthByTopic = ReadonlyMap<string, number>;

interface SampledTopic extends Sample {
  readonly topic: string;
}

const FRESH_MS = 1_000;
const PATIENCE_MS = 500;

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
    for (const row of rows) known.set(row.topic, (known.get(row.topic) ?? 0) + estimateRows(row));
    this.#known = known;
    this.#readAtMs = systemClock.monotonicMs();
  }
}

const NOTHING_KNOWN: DepthByTopic = new Map();

export interface BacklogSize {
  readonly pending: number;
  readonly oldestMs: number;
  readonly deadLetters: number;
  readonly unownedLanes: number;
}

interface DeadLetterCount {
  /** `outbox` for messages that could not be sent. */
  readonly consumer: string;
  readonly type: string;
  readonly count: number;
}

interface BacklogRow {
  readonly pending: number;
  readonly oldest_ms: number;
  readonly dead_letters: number;
  readonly unowned: number;
}

/**
 * Measures the backlog: waiting messages (an estimate), the age of the oldest one, open dead letters, and
 * lanes without an owner.
 */
export async function measureBacklog(database: Database, schema: string): Promise<BacklogSize> {
  const { backlog } = depthStatements(quoteSchema(schema));
  const { rows } = await database.run<BacklogRow>(backlog);
  const row = rows[0] ?? { pending: 0, oldest_ms: 0, dead_letters: 0, unowned: 0 };
  return {
    pending: row.pending,
    oldestMs: row.oldest_ms,
    deadLetters: row.dead_letters,
    unownedLanes: row.unowned,
  };
}

/**
 * Estimates per topic how many messages wait in the queue of the Postgres transport for their slowest group.
 */
export async function measureQueue(database: Database, schema: string): Promise<ReadonlyMap<string, number>> {
  const { rows } = await database.run<SampledTopic>(depthStatements(quoteSchema(schema)).queued);
  return new Map(rows.map((row) => [row.topic, estimateRows(row)]));
}

/** Returns the consumers and types with the most open dead letters, at most fifty. */
export async function measureDeadLetters(
  database: Database,
  schema: string,
): Promise<readonly DeadLetterCount[]> {
  const { rows } = await database.run<DeadLetterCount>(depthStatements(quoteSchema(schema)).deadLetters);
  return rows;
}
