import { SagaboxError } from "../../errors/index.ts";
import { quoteSchema } from "../../storage/index.ts";
import { type Extra, rightsByObject, schemaObjects } from "./grant.ts";
import { type RoleName, roleNames, roles } from "./roles.ts";
import { grantLine, rolesScript } from "./statements.ts";

export interface RolesOptions {
  readonly schema: string;
  /** Begins the name of every role. Default "sagabox_". */
  readonly prefix?: string;
  readonly extras?: readonly Extra[];
}

/** Returns the SQL that creates the roles with exactly their rights. It can be run repeatedly. Throws OPTIONS_INVALID. */
export function rolesSql({ schema, prefix = "sagabox_", extras = [] }: RolesOptions): string {
  const quoted = quoteSchema(schema);
  const names = quoteRoles(prefix);
  const grants = roleNames.flatMap((role) => {
    const own = roles[role].grants.filter(({ only }) => only === undefined || extras.includes(only));
    return [...rightsByObject(own)].map(([on, can]) =>
      grantLine(quoted, { kind: schemaObjects[on], on, can, to: names[role] }),
    );
  });
  const memberships = roleNames.flatMap((role) =>
    roles[role].includes.map((other) => ({ role: names[role], of: names[other] })),
  );
  return rolesScript({
    schema: quoted,
    owner: names.owner,
    operator: names.operator,
    all: roleNames.map((name) => names[name]),
    memberships,
    grants,
  });
}

const VALID = /^[a-z_][a-z0-9_]*$/;
const MAX_NAME_LENGTH = 63;

/** Returns the quoted role names. Roles exist per server, so each installation may have its own prefix. */
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
