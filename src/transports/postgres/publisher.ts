import { toError } from "../../errors/index.ts";
import { laneFor, streamFor, type Message } from "../../message/index.ts";
import { quoteSchema, sqlState, toArrayLiteral } from "../../storage/index.ts";
import type { HomeDatabase, PublishOutcome } from "../../transport/index.ts";
import { queueStatements } from "./statements.ts";

/**
 * Writes a batch for every subscribed group in one statement. If it fails, all of the batch fails, which keeps order
 * per key.
 */
export async function publishToQueue(
  { database, schema }: HomeDatabase,
  batch: readonly Message[],
): Promise<{ outcomes: PublishOutcome[]; woken: number[] }> {
  if (batch.length === 0) return { outcomes: [], woken: [] };
  try {
    const { publish } = queueStatements(quoteSchema(schema));
    const { rows } = await database.run<{ lane: number }>(publish, messageParams(batch));
    const woken = [...new Set(rows.map((row) => row.lane))];
    return { outcomes: batch.map(() => ({ kind: "published" })), woken };
  } catch (thrown) {
    const outcome = toFailedOutcome(thrown);
    return { outcomes: batch.map(() => outcome), woken: [] };
  }
}

/** The messages as array parameters 1 to 21 of a statement that stores them. */
export function messageParams(batch: readonly Message[]): string[] {
  const toColumn = (pick: (message: Message) => string | number | null): string =>
    toArrayLiteral(batch.map(pick));
  return [
    toColumn((message) => message.id),
    toColumn((message) => laneFor(message.key ?? message.id)),
    toColumn((message) => (message.key === null ? null : streamFor(message.topic, message.key))),
    toColumn((message) => message.kind),
    toColumn((message) => message.type),
    toColumn((message) => message.schemaVersion),
    toColumn((message) => message.topic),
    toColumn((message) => message.key),
    toColumn((message) => message.aggregateType),
    toColumn((message) => message.aggregateId),
    toColumn((message) => message.sagaId),
    toColumn((message) => message.correlationId),
    toColumn((message) => message.causationId),
    toColumn((message) => message.traceparent),
    toColumn((message) => message.source),
    toColumn((message) => message.target),
    toColumn((message) => message.priority),
    toColumn((message) => JSON.stringify(message.headers)),
    toColumn((message) => message.data),
    toColumn((message) => message.writtenAt),
    toColumn((message) => message.expiresAt),
  ];
}

// An error with an SQLSTATE means that nothing was written. Without one the outcome is unknown.
function toFailedOutcome(thrown: unknown): PublishOutcome {
  const error = toError(thrown);
  const state = sqlState(thrown);
  if (state === undefined) return { kind: "unknown", error };
  return state.startsWith("22") || state.startsWith("23")
    ? { kind: "rejected", error }
    : { kind: "unreachable", error };
}
