import { expect, test, vi } from "vitest";
import { rolesHarness } from "../../../test/support/roles-harness.ts";
import { type Extra, type ObjectName, type Rights, schemaObjects } from "./grant.ts";
import { rolesSql } from "./roles-sql.ts";
import { rightsForRole, roleNames } from "./roles.ts";

vi.setConfig({ testTimeout: 60_000 });

const names = Object.keys(schemaObjects) as ObjectName[];

test("G10: everything in the schema has an entry, and every entry is in the schema", async () => {
  const { pool } = await rolesHarness();
  const { rows } = await pool.query<{ name: string; kind: string }>(
    `select relname as name, case relkind when 'v' then 'view' when 'S' then 'sequence' else 'table' end as kind
       from pg_class as class
      where relnamespace = 'sagabox'::regnamespace and relkind not in ('i', 'I', 't') and not relispartition
        and not (relkind = 'S' and exists (select 1 from pg_depend where objid = class.oid and deptype = 'i'))
     union all
     select proname, 'function' from pg_proc where pronamespace = 'sagabox'::regnamespace
      order by 1`,
  );
  const found = Object.fromEntries(rows.map(({ name, kind }) => [name, kind]));
  expect(found).toEqual(schemaObjects);
});

interface Held {
  readonly role: string;
  readonly name: string;
  readonly kind: string;
  readonly privilege: string;
  readonly whole: boolean;
  readonly columns: readonly string[];
}

const matrix = `
  select role.name as role, class.relname as name, case class.relkind when 'S' then 'sequence' else 'table' end as kind,
         privilege,
         case when class.relkind = 'S' then has_sequence_privilege(role.oid, class.oid, privilege)
              else has_table_privilege(role.oid, class.oid, privilege) end as whole,
         case when class.relkind = 'S' or privilege not in ('select', 'insert', 'update') then '{}'::text[] else array(
           select attname::text from pg_attribute
            where attrelid = class.oid and (attnum > 0 or attname = 'ctid') and not attisdropped
              and has_column_privilege(role.oid, class.oid, attnum, privilege)) end as columns
    from (select substr(rolname, length($1) + 1) as name, oid from pg_roles where rolname = any($2::text[])) as role
   cross join pg_class as class
   cross join lateral unnest(case when class.relkind = 'S' then array['usage', 'select', 'update']
     else array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger'] end) as privilege
   where class.relnamespace = 'sagabox'::regnamespace and class.relkind in ('r', 'p', 'v', 'S')
  union all
  select role.name, proname, 'function', 'execute', has_function_privilege(role.oid, proc.oid, 'execute'), '{}'
    from (select substr(rolname, length($1) + 1) as name, oid from pg_roles where rolname = any($2::text[])) as role
   cross join pg_proc as proc where pronamespace = 'sagabox'::regnamespace`;

test.each<{ extras: Extra[] }>([
  { extras: [] },
  { extras: ["optimistic"] },
  { extras: ["optimistic", "overflow"] },
])("SEC-35: each role holds the rights in the table and no other ($extras)", async ({ extras }) => {
  const { pool, prefix } = await rolesHarness(extras);
  await pool.query(
    "create table sagabox.message_20990101 partition of sagabox.message for values from ('2099-01-01') to ('2099-01-02')",
  );
  const others = roleNames.filter((name) => name !== "owner");
  const { rows } = await pool.query<Held>(matrix, [prefix, others.map((name) => prefix + name)]);
  const held = new Map<string, Record<string, unknown>>();
  for (const { role, name, privilege, whole, columns } of rows) {
    const extent = whole ? "all" : columns.length > 0 ? columns.toSorted() : undefined;
    if (extent !== undefined)
      held.set(`${role} ${name}`, { ...held.get(`${role} ${name}`), [privilege]: extent });
  }
  const wanted = others.flatMap((role) =>
    [...rightsForRole(role, extras)].map(([name, rights]) => [`${role} ${name}`, sorted(rights)] as const),
  );
  expect(rows.length).toBeGreaterThan(others.length * names.length);
  expect(Object.fromEntries(held)).toEqual(Object.fromEntries(wanted));
});

function sorted(rights: Rights): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(rights).map(([privilege, extent]) => [
      privilege,
      extent === "all" ? "all" : extent.toSorted(),
    ]),
  );
}

test("SEC-38: nobody in particular may do anything, and no function runs with a foreign search_path", async () => {
  const { pool, as } = await rolesHarness();
  const { rows } = await pool.query(
    `select proname, proacl::text as acl, proconfig::text as config, prosecdef from pg_proc
      where pronamespace = 'sagabox'::regnamespace`,
  );
  expect(rows.length).toBeGreaterThan(5);
  for (const { proname, acl, config } of rows as {
    proname: string;
    acl: string | null;
    config: string | null;
  }[]) {
    expect(config, proname).toMatch(
      /^\{"?search_path=pg_catalog(, pg_temp)?"?(,enable_seqscan=off)?(,plan_cache_mode=force_generic_plan)?\}$/,
    );
    expect(acl, proname).not.toBeNull();
    expect(acl, proname).not.toMatch(/[{,]=/);
  }
  const stranger = await as();
  await expect(stranger.query("select 1 from sagabox.masked_message")).rejects.toThrow(
    "permission denied for schema",
  );
});

test("G10: the script may be run again and takes back what is no longer in the list", async () => {
  const { pool, prefix, as } = await rolesHarness(["optimistic"]);
  const writer = await as("writer");
  await pool.query(`grant select on sagabox.message to "${prefix}writer"`);
  await writer.query("select data from sagabox.message");
  await writer.query("delete from sagabox.outbox where lane = 1 and seq = 1");
  for (const _ of [1, 2]) await pool.query(rolesSql({ schema: "sagabox", prefix }));
  await expect(writer.query("select data from sagabox.message")).rejects.toThrow("permission denied");
  await expect(writer.query("delete from sagabox.outbox")).rejects.toThrow("permission denied");
});

test("G10: all that the migrations made belongs to the owner, whoever ran them", async () => {
  const { pool, prefix } = await rolesHarness();
  const { rows } = await pool.query(
    `select distinct relowner::regrole::text as owner from pg_class where relnamespace = 'sagabox'::regnamespace
     union select proowner::regrole::text from pg_proc where pronamespace = 'sagabox'::regnamespace
     union select nspowner::regrole::text from pg_namespace where nspname = 'sagabox'`,
  );
  expect(rows).toEqual([{ owner: `${prefix}owner` }]);
});
