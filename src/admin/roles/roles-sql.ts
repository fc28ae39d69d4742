import { quoteSchema } from "../../storage/index.ts";
import { rightsByObject, type Extra } from "./grant.ts";
import { schemaObjects } from "./objects.ts";
import { quoteRoles } from "./role-names.ts";
import { roleNames, roles } from "./roles.ts";
import { grantLine, rolesScript } from "./statements.ts";

export interface RolesOptions {
  readonly schema: string;
  /** Begins the name of every role. Default "sagabox_". */
  readonly prefix?: string;
  readonly extras?: readonly Extra[];
}

/** The SQL that makes the roles and gives them their rights, no more and no less. Running it again is harmless. */
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
