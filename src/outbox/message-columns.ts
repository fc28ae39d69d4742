import { noHeaders } from "../message/index.ts";
import { type Param, toArrayLiteral } from "../storage/index.ts";
import type { Outgoing } from "./outgoing.ts";

type ColumnValue = string | number | boolean | null;

/** A value that a write statement takes for each message. */
export interface MessageColumn {
  readonly name: string;
  readonly type: string;
  readonly value: (outgoing: Outgoing) => ColumnValue;
  /** The value of most messages, and the column's default. Statements for usual messages leave the column out. */
  readonly usual?: ColumnValue;
}

/** The parameters of the write statements, in their order. Columns, types and values all derive from this table. */
export const messageColumns: readonly MessageColumn[] = [
  { name: "id", type: "text", value: ({ message }) => message.id },
  { name: "lane", type: "integer", value: ({ lane }) => lane },
  { name: "stream", type: "bigint", value: ({ stream }) => stream },
  { name: "kind", type: "text", value: ({ message }) => message.kind },
  { name: "type", type: "text", value: ({ message }) => message.type },
  { name: "schema_version", type: "integer", value: ({ message }) => message.schemaVersion },
  { name: "topic", type: "text", value: ({ message }) => message.topic },
  { name: "key", type: "text", value: ({ message }) => message.key },
  { name: "aggregate_type", type: "text", value: ({ message }) => message.aggregateType, usual: null },
  { name: "aggregate_id", type: "text", value: ({ message }) => message.aggregateId, usual: null },
  { name: "saga_id", type: "text", value: ({ message }) => message.sagaId, usual: null },
  { name: "correlation_id", type: "text", value: ({ message }) => message.correlationId },
  { name: "causation_id", type: "text", value: ({ message }) => message.causationId, usual: null },
  { name: "traceparent", type: "text", value: ({ message }) => message.traceparent },
  { name: "source", type: "text", value: ({ message }) => message.source },
  { name: "target", type: "text", value: ({ message }) => message.target, usual: null },
  { name: "priority", type: "smallint", value: ({ message }) => message.priority },
  { name: "max_attempts", type: "smallint", value: ({ maxAttempts }) => maxAttempts },
  { name: "holds_on_death", type: "boolean", value: ({ holdsOnDeath }) => holdsOnDeath, usual: false },
  { name: "headers", type: "text", value: ({ message }) => headersJson(message.headers), usual: "{}" },
  { name: "data", type: "text", value: ({ message }) => message.data },
  { name: "ttl_ms", type: "double precision", value: ({ ttlMs }) => ttlMs, usual: null },
];

/** The columns of a usual message, which differs from the defaults in no other column. */
export const usualColumns = messageColumns.filter(({ usual }) => usual === undefined);
const rareColumns = messageColumns.filter(({ usual }) => usual !== undefined);

/** The columns that the tables `message` and `scheduled` store; `ttl_ms` becomes `expires_at`. */
export const STORED_COLUMNS = messageColumns
  .map(({ name }) => name)
  .filter((name) => name !== "ttl_ms")
  .join(", ");

/** Returns true if the statements for usual messages can write the message. */
export function isUsual(outgoing: Outgoing): boolean {
  return rareColumns.every(({ value, usual }) => value(outgoing) === usual);
}

/** Returns the parameters of a statement for many messages: an array literal per column. */
export function listParams(outgoing: readonly Outgoing[]): Param[] {
  return messageColumns.map(({ value }) => toArrayLiteral(outgoing.map(value)));
}

/** Returns the parameters of a statement for one message: a string or null per column. */
export function singleParams(columns: readonly MessageColumn[], outgoing: Outgoing): Param[] {
  return columns.map((column) => {
    const value = column.value(outgoing);
    return value === null ? null : String(value);
  });
}

function headersJson(headers: Outgoing["message"]["headers"]): string {
  return headers === noHeaders ? "{}" : JSON.stringify(headers);
}
