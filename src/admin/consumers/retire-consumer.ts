import { AuditWriter } from "../../audit/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { text } from "../../options/index.ts";
import type { Operator } from "../../saga/index.ts";
import { quoteSchema, type Database, type Queryable } from "../../storage/index.ts";
import { retireGroup } from "../../transports/postgres/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import { listConsumerNames, unknownConsumer } from "./consumer-names.ts";
import { consumerStatements } from "./statements.ts";

/** What goes with a consumer. */
export interface RetirePlan {
  readonly consumer: string;
  /** What it has subscribed to. */
  readonly topics: readonly string[];
  /** How many messages wait for it. */
  readonly deliveries: number;
}

const WHERE = "inbox retire";

/** What `retireConsumer` would do. Refuses as it would. */
export async function planRetirement(
  database: Queryable,
  schema: string,
  consumer: string,
): Promise<RetirePlan> {
  const { topics, deliveries } = await readConsumerState(database, schema, consumer);
  return { consumer, topics, deliveries };
}

/**
 * Takes away the subscriptions of a consumer that is gone for good, and what waits for it. What it has handled stays known,
 * and its dead letters stay: under its old name it is recognised, and begins as a new one. Resolves with what went.
 */
export async function retireConsumer(
  database: Database,
  schema: string,
  consumer: string,
  by: Operator,
): Promise<RetirePlan> {
  const entry = {
    ...readOperator(WHERE, by),
    action: "inbox.retire",
    target: { kind: "consumer", id: text(`${WHERE}: the consumer`, consumer, { max: 255 }) },
  };
  return new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const tx = await database.begin();
    try {
      const { id, topics } = await readConsumerState(tx, schema, consumer);
      const retired = await retireGroup(tx, schema, id);
      if (retired === undefined) throw stillRunning(consumer, []);
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
  text(`${WHERE}: the consumer`, consumer, { max: 255 });
  const { standing } = consumerStatements(quoteSchema(schema));
  const [found] = (await database.run<ConsumerState>(standing, [consumer])).rows;
  if (found === undefined) {
    throw unknownConsumer(consumer, await listConsumerNames(database, schema, { subscribed: true }));
  }
  if (found.workers.length > 0) throw stillRunning(consumer, found.workers);
  return found;
}

function stillRunning(consumer: string, workers: readonly string[]): SagaboxError {
  const where = workers.length === 0 ? "" : ` (${workers.slice(0, 5).join(", ")})`;
  return new SagaboxError(
    "CONSUMER_RUNNING",
    `Consumer ${JSON.stringify(consumer)} is alive in a worker${where}, so it was not retired. Deploy without it, or stop that ` +
      "worker first; one that was killed counts until its lease is over.",
  );
}
