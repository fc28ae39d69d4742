import { buryMessage } from "../dead-letter/index.ts";
import { encodeJson, type Message } from "../message/index.ts";
import { randomToken, systemClock } from "../runtime/index.ts";
import type { InboxEngine } from "./engine.ts";
import type { ForeignMessage, Processed } from "./inbox.ts";
import { idFlaw } from "./read-message.ts";

/** Keeps a message without a usable id as a dead letter: without one nobody could tell its second copy from its first. */
export async function buryForeign(
  { database, deadLetters, observer }: InboxEngine,
  foreign: ForeignMessage,
  id: unknown,
): Promise<Processed<never>> {
  const error = idFlaw(id);
  const message = toStoredMessage(foreign);
  const { consumer, type, topic } = foreign;
  const tx = await database.begin();
  try {
    await buryMessage(tx, deadLetters, {
      origin: "consumer",
      consumer,
      message,
      reason: "rejected",
      error,
      attempts: foreign.attempt ?? 1,
      maxAttempts: 1,
    });
    await tx.commit();
  } catch (failure) {
    await tx.rollback();
    throw failure;
  }
  const told = { origin: "consumer", consumer, id: message.id, type, topic, reason: "rejected" } as const;
  observer.emit("dead_letter.buried", { ...told, error: error.message });
  return { kind: "dead_letter", code: error.code };
}

function toStoredMessage(foreign: ForeignMessage): Message {
  const id = `unidentified-${randomToken()}`;
  return {
    id,
    kind: "event",
    type: foreign.type,
    schemaVersion: 1,
    topic: foreign.topic,
    key: null,
    data: asText(foreign.data),
    headers: foreign.headers ?? {},
    correlationId: foreign.correlationId ?? id,
    causationId: null,
    traceparent: foreign.traceparent ?? "",
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    source: "",
    target: null,
    priority: 5,
    writtenAt: new Date(systemClock.wallMs()).toISOString(),
    expiresAt: null,
  };
}

// What cannot be written as JSON is kept as its text: a person must be able to see what came.
function asText(data: unknown): string {
  try {
    return encodeJson(data);
  } catch {
    return JSON.stringify(String(data));
  }
}
