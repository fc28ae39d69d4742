import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { quoteSchema, type Statement } from "../../src/storage/index.ts";
import { formatSql } from "./format-sql.ts";
import { samples } from "./samples.ts";

const SOURCES = join(import.meta.dirname, "../../src");
const SCHEMA = quoteSchema("sagabox");

/** Strings in statements files that do not begin like this are parts of statements. */
const STATEMENT = /^\s*(--|with|select|insert|update|delete|create|alter|drop|lock|grant|do)\s/;

/** One statement, or one variant of a statement that depends on arguments. */
export interface ListedStatement {
  /** The file that defines it, from `src`. */
  readonly file: string;
  readonly name: string;
  readonly text: string;
  /** The arguments that lead to this variant. */
  readonly variant: string;
}

/** All statements of `src`, by file and in the order in which the file defines them. */
export async function listStatements(): Promise<readonly ListedStatement[]> {
  const lists: ListedStatement[][] = [];
  for (const file of statementFiles()) {
    const module = (await import(pathToFileURL(join(SOURCES, file)).href)) as Record<string, unknown>;
    const exports = Object.entries(module).toSorted(([a], [b]) => position(file, a) - position(file, b));
    lists.push(withoutRepeats(exports.flatMap(([name, value]) => readExport(file, name, value))));
  }
  return lists.flat();
}

/** The whole of docs/reference/statements.sql. */
export async function statementsFile(): Promise<string> {
  const all = await listStatements();
  const files = [...new Set(all.map(({ file }) => file))];
  const sections = files.map((file) => {
    const statements = all.filter((statement) => statement.file === file);
    const texts = statements.map(
      ({ name, text, variant }) =>
        `-- ${name}${variant === "" ? "" : `: ${variant}`}\n${formatSql(text).trimEnd()}${ENDED.test(text) ? "" : ";"}\n`,
    );
    return `-- ══ src/${file} ${"═".repeat(Math.max(3, 107 - file.length))}\n\n${texts.join("\n")}`;
  });
  return `${HEADER}\n${sections.join("\n")}`;
}

const ENDED = /;\s*(--[^\n]*\s*)*$/;

const HEADER = `-- The final text of every SQL statement in src/, with its name and the file that defines it.
-- Written by scripts/build-sql.ts. Do not edit.
--
-- The schema is the default, "sagabox". A statement that is put together from parts is shown once per variant, or with
-- representative arguments, as its comment says. Indentation and line breaks are added. The tables are in schema.sql.
`;

/** The files that define statements, in alphabetical order. */
export function statementFiles(): readonly string[] {
  return readdirSync(SOURCES, { recursive: true, encoding: "utf8" })
    .filter((path) => /(^|\/)([\w-]+-)?statements\.ts$/.test(path))
    .toSorted();
}

function position(file: string, name: string): number {
  return readFileSync(join(SOURCES, file), "utf8").search(new RegExp(`export (const|function) ${name}\\b`));
}

function withoutRepeats(list: readonly ListedStatement[]): ListedStatement[] {
  const seen = new Set<string>();
  return list.filter(({ name, text }) => {
    const isNew = !seen.has(`${name} ${text}`);
    seen.add(`${name} ${text}`);
    return isNew;
  });
}

function readExport(file: string, name: string, value: unknown): ListedStatement[] {
  const place = `${file}#${name}`;
  if (typeof value !== "function") return readValue(file, place, value, "");
  if (!/Statements?$|Script$/.test(name)) return [];
  const call = value as (...args: readonly unknown[]) => unknown;
  const variants = samples[place] ?? { "": [SCHEMA] };
  return Object.entries(variants).flatMap(([variant, args]) =>
    readValue(file, place, typeof args === "string" ? args : call(...args), variant),
  );
}

function readValue(file: string, place: string, value: unknown, variant: string): ListedStatement[] {
  if (isStatement(value)) return [{ file, name: value.name, text: value.text, variant }];
  if (typeof value === "string") {
    return STATEMENT.test(value) ? [{ file, name: place.replace(/^.*#/, ""), text: value, variant }] : [];
  }
  if (typeof value === "function") return readTemplate(file, place, value as Template, variant);
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, member]) =>
    readValue(file, `${place}.${key}`, member, variant),
  );
}

type Template = (...args: readonly unknown[]) => unknown;

/** A function that makes a statement from arguments. Each needs sample arguments, so that none is left out. */
function readTemplate(file: string, place: string, template: Template, outer: string): ListedStatement[] {
  const variants = samples[place];
  if (variants === undefined) throw new Error(`${place} needs sample arguments in scripts/sql/samples.ts`);
  return Object.entries(variants).flatMap(([variant, args]) =>
    readValue(
      file,
      place,
      typeof args === "string" ? args : template(...args),
      [outer, variant].filter((part) => part !== "").join(", "),
    ),
  );
}

function isStatement(value: unknown): value is Statement {
  return typeof value === "object" && value !== null && "name" in value && "text" in value;
}
