import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type pg from "pg";

const MIGRATIONS = join(import.meta.dirname, "../../src/storage/migrations");

/** The whole of docs/reference/schema.sql: the objects of a migrated database, with the comments of the migrations. */
export async function schemaFile(pool: pg.Pool): Promise<string> {
  const { rows } = await pool.query<SchemaObject>(OBJECTS);
  const sections = readdirSync(MIGRATIONS)
    .filter((name) => name.endsWith(".sql"))
    .toSorted()
    .map((name) => ({ name, sql: readFileSync(join(MIGRATIONS, name), "utf8").replaceAll("{schema}.", "") }));
  const placed = rows.map((object) => ({ ...object, ...findSource(sections, object) }));
  const texts = [{ name: "the ledger of migrations", sql: "" }, ...sections].map(({ name, sql }, index) => {
    const own = placed
      .filter(({ section }) => section === index - 1)
      .toSorted((a, b) => a.position - b.position);
    const intro = leadingComment(sql);
    return `-- ══ ${name} ${"═".repeat(113 - name.length)}\n${intro}\n${own.map(printObject).join("\n")}`;
  });
  return `${HEADER}\n${texts.join("\n")}`;
}

const HEADER = `-- The schema of a migrated database: tables with columns, constraints, indexes and triggers, views and functions.
-- Written by scripts/build-sql.ts from a database that was migrated, with the comments of src/storage/migrations.
-- Do not edit. To create the schema, run \`sagabox migrate up\`; to apply it with your own tool, \`sagabox migrate sql\`.
--
-- Not shown: the partitions, which \`sagabox run\` creates for days and months; and rights. PUBLIC has none, and
-- \`sagabox roles sql\` prints those of each role.
`;

interface SchemaObject {
  readonly kind: "domain" | "sequence" | "table" | "view" | "function";
  readonly name: string;
  /** The definition; of a table, what follows the list of its columns. */
  readonly definition: string;
  readonly columns: readonly Column[];
  readonly constraints: readonly string[];
  /** Indexes, triggers and settings of a table. */
  readonly additions: readonly string[];
}

interface Column {
  readonly name: string;
  readonly definition: string;
}

interface Source {
  /** The migration that creates the object; -1 if the migration runner does. */
  readonly section: number;
  readonly position: number;
  readonly source: string;
  readonly comment: string;
}

function findSource(sections: readonly { sql: string }[], { kind, name }: SchemaObject): Source {
  const create = new RegExp(`^create (or replace )?${kind} ${name}\\b`, "m");
  for (const [section, { sql }] of [...sections.entries()].toReversed()) {
    const position = sql.search(create);
    if (position < 0) continue;
    const before = sql.slice(0, position).split("\n").slice(0, -1);
    const lines = before.slice(
      before.findLastIndex((line) => !line.startsWith("-- ") || line.startsWith("-- ──")) + 1,
    );
    const comment = lines.map((line) => `${line}\n`).join("");
    return { section, position, source: sql.slice(position), comment };
  }
  return { section: -1, position: 0, source: "", comment: "" };
}

function leadingComment(sql: string): string {
  return /^(--.*\n)*/.exec(sql)?.[0] ?? "";
}

function printObject(object: SchemaObject & Source): string {
  const { kind, definition, source, comment, additions } = object;
  if (kind === "table") {
    const lines = additions.map((line) => `${plainSql(line)};\n`);
    return `${comment}${printTable(object)}${lines.length === 0 ? "" : `\n${lines.join("")}`}`;
  }
  // A server of another version prints the query of a view in other words, so the source is shown.
  if (kind === "view") return `${comment}${source.slice(0, source.indexOf(";\n") + 2)}`;
  const [head = "", ...body] = definition.trimEnd().split(/(?=\$function\$)/);
  return `${comment}${plainSql(head)}${body.join("")};\n`;
}

/** Writes what the server prints the way the migrations are written. */
function plainSql(text: string): string {
  return text
    .split(/('[^']*')/)
    .map((part, index) =>
      index % 2 === 0 ? part.replaceAll(/\b[A-Z]{2,}\b/g, (word) => word.toLowerCase()) : part,
    )
    .join("")
    .replaceAll("timestamp with time zone", "timestamptz")
    .replaceAll(" using btree", "")
    .replaceAll(" on only ", " on ")
    .replaceAll(/^create or replace function/g, "create function")
    .replaceAll(/\n (?=\S)/g, "\n");
}

function printTable({ name, definition, source, columns, constraints }: SchemaObject & Source): string {
  const notes = columnNotes(source);
  const width = Math.max(...columns.map((column) => column.name.length));
  const lines = [
    ...columns.map((column) => ({
      text: `${column.name.padEnd(width)}  ${plainSql(column.definition)}`,
      note: notes.get(column.name) ?? "",
    })),
    ...constraints.map((text) => ({ text: plainSql(text), note: "" })),
  ];
  const body = lines.map(({ text, note }, index) => {
    const comma = index === lines.length - 1 ? "" : ",";
    return `  ${text}${comma}${note === "" ? "" : ` -- ${note}`}\n`;
  });
  return `create table ${name} (\n${body.join("")})${definition};\n`;
}

/** The comments behind the columns of a `create table`. A comment that continues on the next line is joined. */
function columnNotes(source: string): ReadonlyMap<string, string> {
  const notes = new Map<string, string>();
  const body = source.slice(0, source.search(/^\)/m)).split("\n").slice(1);
  let last = "";
  for (const line of body) {
    const [, column, note] = /^ {2}(\w+) .*?(?:-- (.*))?$/.exec(line) ?? [];
    const [, more] = /^ {3,}-- (.*)$/.exec(line) ?? [];
    if (column !== undefined) last = column;
    const text = [notes.get(last), note ?? more].filter((part) => part !== undefined).join(" ");
    if (text !== "") notes.set(last, text);
  }
  return notes;
}

const OBJECTS = `
with own as (
  select class.*, coalesce(' with (' || array_to_string(class.reloptions, ', ') || ')', '') as settings
    from pg_class as class
   where class.relnamespace = 'sagabox'::regnamespace and not class.relispartition
), texts as (
  select 'table' as kind, own.relname::text as name, own.oid,
         coalesce(' partition by ' || lower(pg_get_partkeydef(own.oid)), '') || own.settings as definition
    from own where own.relkind in ('r', 'p')
   union all
  select 'view', own.relname::text, own.oid, '' from own where own.relkind = 'v'
   union all
  select 'sequence', own.relname::text, own.oid,
         'create sequence ' || own.relname || ' as ' || format_type(kept.seqtypid, null) || ' cache ' || kept.seqcache
    from own join pg_sequence as kept on kept.seqrelid = own.oid
   where not exists (select 1 from pg_depend
                      where classid = 'pg_class'::regclass and objid = own.oid and deptype = 'i')
   union all
  select 'domain', typname::text, type.oid,
         'create domain ' || typname || ' as ' || format_type(typbasetype, typtypmod)
           || (select coalesce(string_agg(' ' || pg_get_constraintdef(rule.oid), '' order by conname), '')
                 from pg_constraint as rule where contypid = type.oid and contype = 'c')
    from pg_type as type where typnamespace = 'sagabox'::regnamespace and typtype = 'd'
   union all
  select 'function', proname::text, proc.oid, pg_get_functiondef(proc.oid)
    from pg_proc as proc where pronamespace = 'sagabox'::regnamespace
)
select kind, name, replace(replace(definition, '"sagabox".', ''), 'sagabox.', '') as definition,
       (select coalesce(json_agg(json_build_object('name', attname, 'definition',
                 replace(format_type(atttypid, atttypmod), 'sagabox.', '')
                   || case when attcollation not in (0, (select oid from pg_collation where collname = 'default'))
                           then ' collate "' || (select collname from pg_collation where oid = attcollation) || '"' else '' end
                   || case when attnotnull then ' not null' else '' end
                   || case attidentity when 'a' then ' generated always as identity'
                                       when 'd' then ' generated by default as identity' else '' end
                   || coalesce(' default ' || replace(pg_get_expr(adbin, adrelid), 'sagabox.', ''), '')) order by attnum), '[]')
          from pg_attribute
          left join pg_attrdef on adrelid = attrelid and adnum = attnum
         where attrelid = texts.oid and kind = 'table' and attnum > 0 and not attisdropped) as columns,
       (select coalesce(json_agg('constraint ' || conname || ' ' || replace(pg_get_constraintdef(rule.oid), 'sagabox.', '')
                 order by array_position(array['p', 'u', 'f', 'c'], contype::text), conname collate "C"), '[]')
          from pg_constraint as rule
         where conrelid = texts.oid and kind = 'table' and contype in ('p', 'u', 'f', 'c')) as constraints,
       (select coalesce(json_agg(replace(line, 'sagabox.', '') order by turn, line collate "C"), '[]') from (
          select 1 as turn, pg_get_indexdef(indexrelid) as line from pg_index
           where indrelid = texts.oid and kind = 'table'
             and not exists (select 1 from pg_constraint where conindid = indexrelid and contype in ('p', 'u'))
           union all
          select 2, pg_get_triggerdef(oid) from pg_trigger where tgrelid = texts.oid and not tgisinternal
           union all
          select 3, 'alter table ' || name || ' alter column ' || attname || ' set storage external'
            from pg_attribute where attrelid = texts.oid and kind = 'table' and attstorage = 'e' and attnum > 0) as added) as additions
  from texts
 order by kind, name collate "C"`;
