import { AuditWriter } from "../../audit/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { forgetInbox, inboxRetentionMs, inboxStatements } from "../../inbox/index.ts";
import { type Duration, text } from "../../options/index.ts";
import type { Operator } from "../../saga/index.ts";
import { type Database, type Queryable, quoteSchema } from "../../storage/index.ts";
import { silentObserver } from "../../telemetry/index.ts";
import { retireGroup } from "../../transports/postgres/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import { listConsumerNames, unknownConsumer } from "./list-consumers.ts";
import { consumerStatements } from "./statements.ts";

/** What is deleted with a consumer. */
export interface RetirePlan {
  readonly consumer: string;
  /** Its subscriptions. */
  readonly topics: readonly string[];
  /** Number of messages that are queued for the consumer. */
  readonly deliveries: number;
}

const ERROR_PREFIX = "inbox retire";

/** Previews `retireConsumer`. Read-only. Throws CONSUMER_NOT_FOUND or CONSUMER_RUNNING. */
export async function planRetirement(
  database: Queryable,
  schema: string,
  consumer: string,
): Promise<RetirePlan> {
  const { topics, deliveries } = await readConsumerState(database, schema, consumer);
  return { consumer, topics, deliveries };
}

/**
 * Deletes a decommissioned consumer: its subscriptions and its queued messages. The consumer's inbox rows and dead
 * letters stay, so that a later consumer of this name skips duplicates. Throws CONSUMER_NOT_FOUND or CONSUMER_RUNNING.
 */
export async function retireConsumer(
  database: Database,
  schema: string,
  consumer: string,
  by: Operator,
): Promise<RetirePlan> {
  const entry = {
    ...readOperator(ERROR_PREFIX, by),
    action: "inbox.retire",
    target: { kind: "consumer", id: text(`${ERROR_PREFIX}: the consumer`, consumer, { max: 255 }) },
  };
  return new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const tx = await database.begin();
    try {
      const { id, topics } = await readConsumerState(tx, schema, consumer);
      const retired = await retireGroup(tx, schema, id);
      if (retired === undefined) throw consumerRunning(consumer, []);
      const { deliveries } = retired;
      await note(tx, { before: { topics: topics.slice(0, 100), deliveries } });
      await tx.commit();
      return { consumer, topics, deliveries };
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
}

interface ConsumerState {
  readonly id: number;
  readonly topics: readonly string[];
  readonly deliveries: number;
  readonly workers: readonly string[];
}

async function readConsumerState(
  database: Queryable,
  schema: string,
  consumer: string,
): Promise<ConsumerState> {
  text(`${ERROR_PREFIX}: the consumer`, consumer, { max: 255 });
  const { standing } = consumerStatements(quoteSchema(schema));
  const [found] = (await database.run<ConsumerState>(standing, [consumer])).rows;
  if (found === undefined) {
    throw unknownConsumer(consumer, await listConsumerNames(database, schema, { subscribed: true }));
  }
  if (found.workers.length > 0) throw consumerRunning(consumer, found.workers);
  return found;
}

function consumerRunning(consumer: string, workers: readonly string[]): SagaboxError {
  const where = workers.length === 0 ? "" : ` (${workers.slice(0, 5).join(", ")})`;
  return new SagaboxError(
    "CONSUMER_RUNNING",
    `Consumer ${JSON.stringify(consumer)} is alive in a worker${where}, so it was not retired. Deploy without it, or stop that ` +
      "worker first. A killed worker counts as running until its lease ends.",
  );
}

export interface CleanInboxOptions {
  /** Minimum time to keep inbox rows of handled messages. */
  readonly keep: Duration | number;
  readonly actor: string;
  readonly reason?: string | undefined;
  readonly signal?: AbortSignal;
  readonly onProgress?: (count: number) => void;
}

export interface InboxPlan {
  /** Actual retention, in milliseconds: longer than requested while the archive or a dead letter could redeliver a message. */
  readonly keepMs: number;
  /** Number of inbox rows older than `keepMs`, counted up to 1,000,000. */
  readonly due: number;
}

/** Previews `cleanInbox`. Read-only. */
export async function planInboxCleaning(
  database: Database,
  schema: string,
  keep: CleanInboxOptions["keep"],
): Promise<InboxPlan> {
  const sql = consumerStatements(quoteSchema(schema));
  const [minimum] = (await database.run<RetentionRow>(sql.reach, [quoteSchema(schema)])).rows;
  const keepMs = inboxRetentionMs({
    retention: keep,
    deadLetters: Math.ceil(minimum?.dead_letter_ms ?? 0),
    archive: Math.ceil(minimum?.archive_ms ?? 0),
  });
  const [old] = (await database.run<{ count: number }>(sql.due, [keepMs])).rows;
  return { keepMs, due: old?.count ?? 0 };
}

/** Deletes old inbox rows in small batches, except those of messages that the archive or a dead letter could redeliver. */
export async function cleanInbox(
  database: Database,
  schema: string,
  { keep, actor, reason, signal, onProgress }: CleanInboxOptions,
): Promise<{ readonly keepMs: number; readonly forgotten: number; readonly finished: boolean }> {
  const { keepMs } = await planInboxCleaning(database, schema, keep);
  const sql = inboxStatements(quoteSchema(schema));
  const entry = {
    actor,
    reason: reason ?? `older than ${keep}`,
    action: "inbox.cleanup",
    target: { kind: "inbox" },
  };
  return new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const engine = { database, sql, observer: silentObserver };
    const forgotten = await forgetInbox(engine, {
      olderThanMs: keepMs,
      ...(signal === undefined ? {} : { signal }),
      ...(onProgress === undefined ? {} : { onProgress }),
    });
    await note(database, { after: { keepMs, forgotten } });
    return { keepMs, forgotten, finished: signal?.aborted !== true };
  });
}

/** How long the archive and the dead letters can still redeliver a message. */
interface RetentionRow {
  readonly archive_ms: number;
  readonly dead_letter_ms: number;
}
