import { defineStatement } from "../../storage/index.ts";
import type { ObjectKind, Privilege, Rights } from "./grant.ts";

const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;

/** Returns the SQL script, with comments for administrators. All names must be checked and quoted already. */
export function rolesScript({
  schema,
  owner,
  operator,
  all,
  memberships,
  grants,
}: {
  readonly schema: string;
  readonly owner: string;
  readonly operator: string;
  readonly all: readonly string[];
  readonly memberships: readonly { readonly role: string; readonly of: string }[];
  readonly grants: readonly string[];
}): string {
  const others = all.filter((role) => role !== owner).join(", ");
  return `-- The roles of sagabox and their rights on schema ${schema}. Run it after every migration; running it again is harmless.
-- It needs a superuser, or a role that may create roles and owns the schema.
begin;
set local search_path = pg_catalog, pg_temp;
set local lock_timeout = '10s';

do $roles$
declare
  wanted text;
begin
  foreach wanted in array array[${all.map((role) => literal(role.replaceAll('"', ""))).join(", ")}] loop
    begin
      execute format('create role %I nologin', wanted);
    exception when duplicate_object or unique_violation then null;
    end;
  end loop;
end
$roles$;

-- The owner role owns everything. A user without superuser rights must be a member of it to transfer ownership.
do $owner$
declare
  thing record;
begin
  if not (select rolsuper from pg_roles where rolname = current_user)
     and not pg_has_role(current_user, ${literal(owner)}::regrole::oid, 'USAGE') then
    execute format('grant %s to %I', ${literal(owner)}::regrole, current_user);
  end if;
  if (select nspowner from pg_namespace where oid = ${literal(schema)}::regnamespace) <> ${literal(owner)}::regrole then
    execute format('alter schema %s owner to %s', ${literal(schema)}::regnamespace, ${literal(owner)}::regrole);
  end if;
  for thing in
    select 'table' as kind, class.oid::regclass::text as name
      from pg_class as class
     where class.relnamespace = ${literal(schema)}::regnamespace and class.relkind in ('r', 'p', 'v', 'S')
       and class.relowner <> ${literal(owner)}::regrole
       and not (class.relkind = 'S' and exists (
             select 1 from pg_depend
              where classid = 'pg_class'::regclass and objid = class.oid and deptype in ('a', 'i')))
    union all
    select 'function', proc.oid::regprocedure::text
      from pg_proc as proc
     where proc.pronamespace = ${literal(schema)}::regnamespace and proc.proowner <> ${literal(owner)}::regrole
  loop
    execute format('alter %s %s owner to %s', thing.kind, thing.name, ${literal(owner)}::regrole);
  end loop;
end
$owner$;

-- Revokes all rights first, so that a right that is no longer in the list is removed.
revoke all on schema ${schema} from public, ${others};
revoke all on all tables in schema ${schema} from public, ${others};
revoke all on all sequences in schema ${schema} from public, ${others};
revoke all on all functions in schema ${schema} from public, ${others};
grant usage on schema ${schema} to ${others};
${memberships.map(({ role, of }) => `grant ${of} to ${role};`).join("\n")}

${grants.join("\n")}
commit;

-- Optional: lets \`sagabox doctor\` report long transactions of other users to operators. The right covers the whole server,
-- including the text of queries, and only a superuser or an administrator of that role can grant it:
-- grant pg_read_all_stats to ${operator};
`;
}

/** One line of the script. */
export function grantLine(
  schema: string,
  { kind, on, can, to }: { kind: ObjectKind; on: string; can: Rights; to: string },
): string {
  const rights = Object.entries(can).map(([privilege, extent]) =>
    extent === "all" ? privilege : `${privilege} (${extent.map((column) => `"${column}"`).join(", ")})`,
  );
  const what = kind === "view" ? "table" : kind;
  return `grant ${rights.join(", ")} on ${what} ${schema}."${on}" to ${to};`;
}

export interface WantedRight {
  readonly kind: ObjectKind;
  readonly name: string;
  readonly privilege: Privilege;
  /** Null: on the whole object. */
  readonly column: string | null;
}

export const rightsStatements = {
  // Rights of the list that the current role lacks. Objects that do not exist yet are not reported.
  lacking: defineStatement(
    "sagabox.roles.lacking",
    `select wanted.name, wanted.privilege, wanted."column", current_user as role
       from json_to_recordset($2::json) as wanted (kind text, name text, privilege text, "column" text)
      where not coalesce(
              case wanted.kind
                when 'function' then (
                  select has_function_privilege(proc.oid, 'execute') from pg_proc as proc
                   where proc.pronamespace = $1::text::regnamespace and proc.proname = wanted.name)
                else (
                  select case
                           when wanted.kind = 'sequence' then has_sequence_privilege(class.oid, wanted.privilege)
                           when wanted."column" is null then has_table_privilege(class.oid, wanted.privilege)
                           else has_column_privilege(class.oid, wanted."column", wanted.privilege)
                         end
                    from pg_class as class
                   where class.relnamespace = $1::text::regnamespace and class.relname = wanted.name)
              end, true)`,
  ),
  owns: defineStatement(
    "sagabox.roles.owns",
    `select pg_has_role(class.relowner, 'USAGE') as owns, current_user as role
       from pg_class as class
      where class.relnamespace = $1::text::regnamespace and class.relname = 'message'`,
  ),
};
