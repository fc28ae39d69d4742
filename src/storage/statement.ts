import { SagaboxError } from "../errors/index.ts";

/** A named SQL text. The name shows in prepared statements, logs and query statistics. */
export interface Statement {
  readonly name: string;
  readonly text: string;
  /**
   * Name and fingerprint of the text: two schemas on one connection must not share a prepared statement. Empty if the
   * statement must not be prepared by name.
   */
  readonly preparedName: string;
}

export function defineStatement(name: string, text: string): Statement {
  const trimmed = text.trim();
  return Object.freeze({ name, text: trimmed, preparedName: `${name.slice(0, 46)}:${fingerprint(trimmed)}` });
}

const unnamed = new WeakMap<Statement, Statement>();

/**
 * Returns the statement without a prepared name. Behind a pooler in transaction mode, a statement that was prepared by name
 * is on another session of the server, or another client's is on this one.
 */
export function withoutName(statement: Statement): Statement {
  let plain = unnamed.get(statement);
  if (plain === undefined)
    unnamed.set(statement, (plain = Object.freeze({ ...statement, preparedName: "" })));
  return plain;
}

function fingerprint(text: string): string {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return (hash >>> 0).toString(36);
}

/** Replaces NUL characters, which PostgreSQL cannot store in text. */
export function replaceNul(text: string): string {
  return text.includes("\0") ? text.replaceAll("\0", "\uFFFD") : text;
}

/** Encodes an array as one text parameter (`$1::text::text[]`), which every driver passes unchanged. */
export function toArrayLiteral(values: readonly (string | number | bigint | boolean | null)[]): string {
  let literal = "{";
  for (let i = 0; i < values.length; i++) {
    if (i > 0) literal += ",";
    literal += toArrayElement(values[i] ?? null);
  }
  return literal + "}";
}

function toArrayElement(value: string | number | bigint | boolean | null): string {
  if (value === null) return "NULL";
  if (typeof value !== "string") return String(value);
  const isPlain = !value.includes('"') && !value.includes("\\"); // faster than a regular expression
  return isPlain ? `"${value}"` : `"${value.replace(ESCAPED, "\\$&")}"`;
}

const ESCAPED = /["\\]/g;

const VALID = /^[a-z_][a-z0-9_]{0,62}$/;

/** Checked once, quoted once: the only identifier that ever becomes part of an SQL text. */
export function quoteSchema(name: string): string {
  if (!VALID.test(name) || name.startsWith("pg_")) {
    throw new SagaboxError(
      "SCHEMA_NAME_INVALID",
      `Schema name ${JSON.stringify(String(name).slice(0, 80))} is not usable. ` +
        "Use lower-case letters, digits and underscores, at most 63, not starting with a digit or pg_.",
    );
  }
  return `"${name}"`;
}
