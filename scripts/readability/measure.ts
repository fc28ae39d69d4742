import { readFileSync, readdirSync } from "node:fs";
import { join, posix, relative } from "node:path";
import { parseSync } from "oxc-parser";

/** A file of src/ and its syntax tree. */
export interface ParsedFile {
  /** Relative to the project, with forward slashes. */
  readonly path: string;
  readonly text: string;
  readonly lines: number;
  readonly syntax: ReturnType<typeof parseSync>;
}

export interface Figures {
  readonly files: number;
  readonly lines: number;
  readonly functions: number;
  /** Functions named like `checked` or `given`, which name neither an action nor a value. */
  readonly bareParticiples: number;
  readonly ofNames: number;
  /** Comment lines with "nobody", "whoever" and the like, where a subject should stand. */
  readonly vagueComments: number;
  /** Comment lines that begin "The same", and so cannot be read alone. */
  readonly sameComments: number;
  /** Files other than index.ts, and how many of them are short or have one importer. */
  readonly modules: number;
  readonly shortFiles: number;
  readonly singleImporters: number;
  /** Files and functions that are longer than recommended. */
  readonly warnings: readonly string[];
}

interface NamedFunction {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

interface SyntaxNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

const SHORT_FILE_LINES = 40;
const MAX_FILE_LINES = 500;
const MAX_FUNCTION_LINES = 40;

const NO_PARTICIPLE = /^(need|embed|feed|exceed|proceed|seed|speed|shed|bleed)/;
const PARTICIPLE = /^[a-z]{2,}(ed|own|old|ept|ent|ilt|ound|iven|aken|orn|ought)$/;
const VAGUE_SUBJECT = /\b(nobody|somebody|anybody|whoever|those of|whatever)\b/i;

/** Reads the sources of the package, without tests. */
export function readSources(root: string): ParsedFile[] {
  return readdirSync(join(root, "src"), { recursive: true, withFileTypes: true })
    .filter(({ name }) => name.endsWith(".ts") && !/\.test(-d)?\.ts$/.test(name))
    .map((entry) => {
      const file = join(entry.parentPath, entry.name);
      return parseFile(relative(root, file).replaceAll("\\", "/"), readFileSync(file, "utf8"));
    });
}

export function parseFile(path: string, text: string): ParsedFile {
  return { path, text, lines: text.split("\n").length - 1, syntax: parseSync(path, text) };
}

/** Measures what people wrote; generated files are left out. */
export function measureFiles(sources: readonly ParsedFile[]): Figures {
  const files = sources.filter(({ path }) => !path.endsWith(".generated.ts"));
  const modules = files.filter(({ path }) => !path.endsWith("index.ts"));
  const importers = countImporters(files);
  const functions = files.flatMap((file) => findFunctions(file));
  const comments = files.flatMap(({ syntax }) => syntax.comments.flatMap(({ value }) => value.split("\n")));
  return {
    files: files.length,
    lines: files.reduce((sum, { lines }) => sum + lines, 0),
    functions: functions.length,
    bareParticiples: functions.filter(({ name }) => isBareParticiple(name)).length,
    ofNames: functions.filter(({ name }) => /[a-z]Of$/.test(name)).length,
    vagueComments: comments.filter((line) => VAGUE_SUBJECT.test(line)).length,
    sameComments: comments.filter((line) => /^\W*The same\b/.test(line)).length,
    modules: modules.length,
    shortFiles: modules.filter(({ lines }) => lines < SHORT_FILE_LINES).length,
    singleImporters: modules.filter(({ path }) => importers.get(path)?.size === 1).length,
    warnings: files.flatMap(findLong),
  };
}

function isBareParticiple(name: string): boolean {
  return PARTICIPLE.test(name) && !NO_PARTICIPLE.test(name);
}

/** For each file, the files that import or re-export it. */
function countImporters(files: readonly ParsedFile[]): ReadonlyMap<string, ReadonlySet<string>> {
  const importers = new Map<string, Set<string>>();
  for (const { path, syntax } of files) {
    for (const statement of syntax.program.body) {
      const specifier = "source" in statement ? statement.source?.value : undefined;
      if (specifier?.startsWith(".") !== true) continue;
      const target = posix.join(posix.dirname(path), specifier);
      importers.set(target, (importers.get(target) ?? new Set()).add(path));
    }
  }
  return importers;
}

/** Function declarations, functions held by a variable, and methods. */
function findFunctions({ syntax }: ParsedFile): NamedFunction[] {
  const found: NamedFunction[] = [];
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) return value.forEach(visit);
    if (!isNode(value)) return;
    const name = readFunctionName(value);
    if (name !== undefined) found.push({ name, start: value.start, end: value.end });
    Object.values(value).forEach(visit);
  };
  visit(syntax.program.body);
  return found;
}

function readFunctionName(node: SyntaxNode): string | undefined {
  const isFunction =
    node.type === "FunctionDeclaration" ||
    (node.type === "VariableDeclarator" && isNode(node["init"]) && node["init"].type.includes("Function"));
  if (isFunction) return readName(node["id"]);
  return node.type === "MethodDefinition" && node["kind"] === "method" ? readName(node["key"]) : undefined;
}

function readName(node: unknown): string | undefined {
  return isNode(node) && typeof node["name"] === "string" ? node["name"] : undefined;
}

function isNode(value: unknown): value is SyntaxNode {
  return typeof value === "object" && value !== null && "type" in value && "start" in value;
}

/** Lists of SQL statements may be as long as they need to be. */
function findLong(file: ParsedFile): string[] {
  if (file.path.endsWith("statements.ts")) return [];
  const long = findFunctions(file).flatMap(({ name, start, end }) => {
    const lines = file.text.slice(start, end).split("\n").length;
    const line = file.text.slice(0, start).split("\n").length;
    if (lines <= MAX_FUNCTION_LINES) return [];
    return [`${file.path}:${line} ${name} has ${lines} lines; ${MAX_FUNCTION_LINES} are recommended`];
  });
  if (file.lines <= MAX_FILE_LINES) return long;
  return [`${file.path} has ${file.lines} lines; ${MAX_FILE_LINES} are recommended`, ...long];
}

/** Counts the files that importing `entry` loads at once. Imports of types and `import()` load nothing yet. */
export function countLoadedModules(files: readonly ParsedFile[], entry: string): number {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const loaded = new Set<string>();
  const load = (path: string): void => {
    const file = byPath.get(path);
    if (file === undefined || loaded.has(path)) return;
    loaded.add(path);
    for (const specifier of readValueImports(file)) load(posix.join(posix.dirname(path), specifier));
  };
  load(entry);
  return loaded.size;
}

function readValueImports({ syntax }: ParsedFile): string[] {
  const { staticImports, staticExports } = syntax.module;
  const imported = staticImports
    .filter(({ entries }) => entries.length === 0 || entries.some((entry) => !entry.isType))
    .map(({ moduleRequest }) => moduleRequest.value);
  const exported = staticExports.flatMap(({ entries }) =>
    entries.filter((entry) => !entry.isType).map((entry) => entry.moduleRequest?.value),
  );
  return [...imported, ...exported].filter((specifier) => specifier?.startsWith(".") === true) as string[];
}
