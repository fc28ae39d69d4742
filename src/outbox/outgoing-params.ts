import { noHeaders } from "../message/index.ts";
import { toArrayLiteral, type Param } from "../storage/index.ts";
import type { Outgoing } from "./outgoing.ts";

type ValueReader = (one: Outgoing) => string | number | boolean | null;

/** What the write statements take of a message, in their order. */
const COLUMN_VALUES: readonly ValueReader[] = [
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

/** Whether it does without what most messages do without. */
export function isUsual({ message, holdsOnDeath, ttlMs }: Outgoing): boolean {
  return (
    message.headers === noHeaders &&
    message.causationId === null &&
    message.sagaId === null &&
    message.aggregateType === null &&
    message.aggregateId === null &&
    message.target === null &&
    ttlMs === null &&
    !holdsOnDeath
  );
}

/** A list for each of them. */
export function outgoingParams(outgoing: readonly Outgoing[]): Param[] {
  return COLUMN_VALUES.map((pick) => toArrayLiteral(outgoing.map(pick)));
}

/** The same for a statement that takes one message. */
export function singleParams(outgoing: Outgoing): Param[] {
  return COLUMN_VALUES.map((pick) => {
    const value = pick(outgoing);
    return value === null ? null : String(value);
  });
}

/** The same for one that is usual, without the rest. One by one: this is nearly every message. */
export function usualParams({ message, lane, stream, maxAttempts }: Outgoing): Param[] {
  return [
    message.id,
    String(lane),
    stream,
    message.kind,
    message.type,
    String(message.schemaVersion),
    message.topic,
    message.key,
    message.correlationId,
    message.traceparent,
    message.source,
    String(message.priority),
    String(maxAttempts),
    message.data,
  ];
}
