import { SagaboxError } from "../errors/index.ts";

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
