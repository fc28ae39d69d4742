import { SagaboxError } from "../../errors/index.ts";
import { type Database, quoteSchema } from "../../storage/index.ts";
import { type Extra, type ObjectName, type Rights, schemaObjects } from "./grant.ts";
import { rightsForRole, type RoleName } from "./roles.ts";
import { rightsStatements, type WantedRight } from "./statements.ts";

interface MissingRight {
  readonly name: string;
  readonly privilege: string;
  readonly column: string | null;
  readonly role: string;
}

/** Upper bound for missing rights in the message. */
const MAX_NAMED_RIGHTS = 3;

/**
 * Checks at startup that the role of this connection has all rights of the given roles. Throws STORAGE_PERMISSION_DENIED
 * with the missing rights.
 */
export async function assertRights(
  database: Database,
  schema: string,
  needed: readonly RoleName[],
  extras: readonly Extra[] = [],
): Promise<void> {
  const quoted = quoteSchema(schema);
  for (const role of needed) {
    if (role === "owner") await assertOwner(database, quoted);
    else await assertRole(database, quoted, role, extras);
  }
}

async function assertOwner(database: Database, schema: string): Promise<void> {
  const { rows } = await database.run<{ owns: boolean; role: string }>(rightsStatements.owns, [schema]);
  const [found] = rows;
  if (found === undefined || found.owns) return;
  throw new SagaboxError(
    "STORAGE_PERMISSION_DENIED",
    `Database role "${found.role}" does not own the tables of schema ${schema}, so it cannot do the upkeep: only their ` +
      'owner may attach and drop partitions. Connect as a member of the owner role, or leave the part "upkeep" to a ' +
      "process that does; see `sagabox help roles`.",
  );
}

async function assertRole(
  database: Database,
  schema: string,
  role: RoleName,
  extras: readonly Extra[],
): Promise<void> {
  const wanted = JSON.stringify(listWantedRights(rightsForRole(role, extras)));
  const { rows } = await database.run<MissingRight>(rightsStatements.lacking, [schema, wanted]);
  if (rows.length === 0) return;
  const named = rows.slice(0, MAX_NAMED_RIGHTS).map(rightText);
  const more = rows.length > MAX_NAMED_RIGHTS ? ` and ${rows.length - MAX_NAMED_RIGHTS} more` : "";
  throw new SagaboxError(
    "STORAGE_PERMISSION_DENIED",
    `Database role "${rows[0]?.role}" lacks rights on schema ${schema}: ${named.join(", ")}${more}. Make it a member of ` +
      `the ${role} role (\`grant sagabox_${role} to "${rows[0]?.role}"\`); ${remedy(rows, role)}.`,
  );
}

function remedy(rows: readonly MissingRight[], role: RoleName): string {
  const withoutExtras = listWantedRights(rightsForRole(role));
  const onlyExtras = rows.every(
    (row) =>
      !withoutExtras.some(
        ({ name, privilege, column }) =>
          name === row.name && privilege === row.privilege && column === row.column,
      ),
  );
  return onlyExtras
    ? "if it is one, `sagabox roles sql` must be run with --with-optimistic-send or --with-overflow, or outbox.optimistic " +
        "be false and outbox.overflow not set"
    : "`sagabox roles sql` makes that role and gives it its rights";
}

function rightText({ name, privilege, column }: MissingRight): string {
  return `${privilege} on ${name}${column === null ? "" : ` (${column})`}`;
}

export function listWantedRights(rights: ReadonlyMap<ObjectName, Rights>): readonly WantedRight[] {
  return [...rights].flatMap(([name, can]) =>
    (Object.entries(can) as [WantedRight["privilege"], "all" | readonly string[]][]).flatMap(
      ([privilege, extent]) =>
        (extent === "all" ? [null] : extent).map((column) => ({
          kind: schemaObjects[name],
          name,
          privilege,
          column,
        })),
    ),
  );
}
