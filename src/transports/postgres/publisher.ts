import { toError } from "../../errors/index.ts";
import { laneOf, streamOf, type Message } from "../../message/index.ts";
import { quotedSchema, sqlState, textArray } from "../../storage/index.ts";
import type { HomeDatabase, PublishOutcome } from "../../transport/index.ts";
import { queueStatements } from "./statements.ts";

/** A batch for every subscribed group, all of it or none: one failure fails them all, so order per key is safe. */
export async function publishToQueue(
  { database, schema }: HomeDatabase,
  batch: readonly Message[],
): Promise<{ outcomes: PublishOutcome[]; woken: number[] }> {
  if (batch.length === 0) return { outcomes: [], woken: [] };
  try {
    const { publish } = queueStatements(quotedSchema(schema));
    const { rows } = await database.run<{ lane: number }>(publish, messageParams(batch));
    const woken = [...new Set(rows.map((row) => row.lane))];
    return { outcomes: batch.map(() => ({ kind: "published" })), woken };
  } catch (thrown) {
    const outcome = outcomeOf(thrown);
    return { outcomes: batch.map(() => outcome), woken: [] };
  }
}

/** The messages as the first parameters of a statement that stores them. */
export function messageParams(batch: readonly Message[]): string[] {
  const list = (pick: (message: Message) => string | number | null): string => textArray(batch.map(pick));
  return [
    list((message) => message.id),
    list((message) => laneOf(message.key ?? message.id)),
    list((message) => (message.key === null ? null : streamOf(message.topic, message.key))),
    list((message) => message.kind),
    list((message) => message.type),
    list((message) => message.schemaVersion),
    list((message) => message.topic),
    list((message) => message.key),
    list((message) => message.aggregateType),
    list((message) => message.aggregateId),
    list((message) => message.sagaId),
    list((message) => message.correlationId),
    list((message) => message.causationId),
    list((message) => message.traceparent),
    list((message) => message.source),
    list((message) => message.target),
    list((message) => message.priority),
    list((message) => JSON.stringify(message.headers)),
    list((message) => message.data),
    list((message) => message.writtenAt),
    list((message) => message.expiresAt),
  ];
}

// An answer with an SQLSTATE says that nothing was written; silence says nothing.
function outcomeOf(thrown: unknown): PublishOutcome {
  const error = toError(thrown);
  const state = sqlState(thrown);
  if (state === undefined) return { kind: "unknown", error };
  return state.startsWith("22") || state.startsWith("23")
    ? { kind: "rejected", error }
    : { kind: "unreachable", error };
}
