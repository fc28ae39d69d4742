import type { Message } from "../message/index.ts";
import { storable, type Param, type Queryable } from "../storage/index.ts";
import { describeFailure, type DeadLetterReason } from "./describe-failure.ts";
import { fingerprintOf } from "./fingerprint.ts";
import type { DeadLetterStatements } from "./statements.ts";

interface Death {
  readonly message: Message;
  readonly reason: DeadLetterReason;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly error: unknown;
}

export type Burial =
  | (Death & { readonly origin: "consumer"; readonly consumer: string })
  | (Death & { readonly origin: "outbox" });

/** Keeps the message as a dead letter, inside the caller's transaction. Null when an open letter has it already. */
export async function buryMessage(
  tx: Queryable,
  sql: DeadLetterStatements,
  death: Burial,
): Promise<string | null> {
  const { rows } = await tx.run<{ id: string }>(sql.bury, burial(death));
  return rows[0]?.id ?? null;
}

/** The parameters of the one insert, for those who send it together with other statements. */
export function burial(death: Burial): readonly Param[] {
  const { message, error } = death;
  const { errorType, errorMessage, stackTrace } = describeFailure(error);
  const consumer = death.origin === "consumer" ? death.consumer : null;
  return [
    death.origin,
    consumer,
    storable(message.id),
    storable(message.kind),
    storable(message.type),
    message.schemaVersion,
    storable(message.topic),
    storableOrNull(message.key),
    storableOrNull(message.aggregateType),
    storableOrNull(message.aggregateId),
    storableOrNull(message.sagaId),
    storable(message.correlationId),
    storableOrNull(message.causationId),
    storable(message.traceparent),
    storable(message.source),
    storableOrNull(message.target),
    message.priority,
    death.maxAttempts,
    storable(JSON.stringify(message.headers)),
    storable(message.data),
    moment(message.writtenAt),
    moment(message.expiresAt),
    death.reason,
    death.attempts,
    errorType,
    errorMessage,
    stackTrace,
    fingerprintOf({ consumer, type: message.type, reason: death.reason, errorType, errorMessage }),
  ];
}

// What a foreign publisher sent may be what PostgreSQL cannot store; a letter with a mark in it beats none at all.
function storableOrNull(text: string | null): string | null {
  return text === null ? null : storable(text);
}

function moment(text: string | null): string | null {
  return text === null || Number.isNaN(Date.parse(text)) ? null : text;
}
