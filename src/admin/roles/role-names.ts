import { SagaboxError } from "../../errors/index.ts";
import { roleNames, type RoleName } from "./roles.ts";

const VALID = /^[a-z_][a-z0-9_]*$/;
const MAX_NAME_LENGTH = 63;

/** The names in the database, quoted. Roles belong to the whole server, so each installation may have its own prefix. */
export function quoteRoles(prefix: string): Readonly<Record<RoleName, string>> {
  const longest = MAX_NAME_LENGTH - Math.max(...roleNames.map((name) => name.length));
  if (!VALID.test(prefix) || prefix.length > longest || prefix.startsWith("pg_")) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `Role prefix ${JSON.stringify(String(prefix).slice(0, 80))} is not usable. Use lower-case letters, digits and ` +
        `underscores, at most ${longest}, not starting with a digit or pg_.`,
    );
  }
  return Object.fromEntries(roleNames.map((name) => [name, `"${prefix}${name}"`])) as Record<
    RoleName,
    string
  >;
}
