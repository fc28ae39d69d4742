import { noHeaders } from "../message/index.ts";
import { textArray, type Param } from "../storage/index.ts";
import type { Outgoing } from "./outgoing.ts";

type Pick = (one: Outgoing) => string | number | boolean | null;

/** What the write statements take of a message, in their order. */
const GIVEN: readonly Pick[] = [
  ({ message }) => message.id,
  ({ lane }) => lane,
  ({ stream }) => stream,
  ({ message }) => message.kind,
  ({ message }) => message.type,
  ({ message }) => message.schemaVersion,
  ({ message }) => message.topic,
  ({ message }) => message.key,
  ({ message }) => message.aggregateType,
  ({ message }) => message.aggregateId,
  ({ message }) => message.sagaId,
  ({ message }) => message.correlationId,
  ({ message }) => message.causationId,
  ({ message }) => message.traceparent,
  ({ message }) => message.source,
  ({ message }) => message.target,
  ({ message }) => message.priority,
  ({ maxAttempts }) => maxAttempts,
  ({ holdsOnDeath }) => holdsOnDeath,
  ({ message }) => (message.headers === noHeaders ? "{}" : JSON.stringify(message.headers)),
  ({ message }) => message.data,
  ({ ttlMs }) => ttlMs,
];

/** A list for each of them. */
export function outgoingParams(outgoing: readonly Outgoing[]): Param[] {
  return GIVEN.map((pick) => textArray(outgoing.map(pick)));
}

/** The same for a statement that takes one message. */
export function oneParams(outgoing: Outgoing): Param[] {
  return GIVEN.map((pick) => {
    const value = pick(outgoing);
    return value === null ? null : String(value);
  });
}
