import { readFileSync, readdirSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parseSync } from "oxc-parser";

export const projectRoot = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

/** One file and its text; checks take these, so a test can hand in a made-up one. */
export interface SourceFile {
  /** Relative to the project, with forward slashes. */
  readonly path: string;
  readonly text: string;
}

/** A place in a file that breaks a written rule. */
export interface Violation {
  readonly path: string;
  readonly line: number;
  readonly problem: string;
}

export interface ImportedModule {
  readonly specifier: string;
  readonly line: number;
  readonly typeOnly: boolean;
  /** True for `import()`, which loads the module when it is called. */
  readonly isDynamic: boolean;
}

/** Any node of the syntax tree; the checks look at a few fields and narrow them first. */
export interface SyntaxNode {
  readonly type: string;
  readonly start: number;
  readonly [field: string]: unknown;
}

const skipped = new Set(["node_modules", "dist", "coverage", ".git", ".sagabox"]);

export function filesBelow(folder: string, ends: string): SourceFile[] {
  const found = readdirSync(join(projectRoot, folder), { recursive: true, withFileTypes: true });
  return found
    .filter((entry) => entry.isFile() && entry.name.endsWith(ends))
    .map((entry) => relative(projectRoot, join(entry.parentPath, entry.name)).replaceAll("\\", "/"))
    .filter((path) => !path.split("/").some((part) => skipped.has(part)))
    .map((path) => ({ path, text: readFileSync(join(projectRoot, path), "utf8") }));
}

export function isTest(path: string): boolean {
  return /\.test(-d)?\.ts$/.test(path);
}

export function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}

// A module named at run time, such as the user's own, belongs to no room.
function quotedText(expression: string): string | undefined {
  return /^(["'`])([^"'`$]*)\1$/.exec(expression)?.[2];
}

export function readImports({ path, text }: SourceFile): ImportedModule[] {
  const { module } = parseSync(path, text);
  const statements = [
    ...module.staticImports.map(({ start, moduleRequest, entries }) => ({
      start,
      specifier: moduleRequest.value,
      typeOnly: entries.length > 0 && entries.every((entry) => entry.isType),
      isDynamic: false,
    })),
    ...module.staticExports.flatMap(({ start, entries }) =>
      entries.map((entry) => ({
        start,
        specifier: entry.moduleRequest?.value,
        typeOnly: entry.isType,
        isDynamic: false,
      })),
    ),
    ...module.dynamicImports.map(({ start, moduleRequest }) => ({
      start,
      specifier: quotedText(text.slice(moduleRequest.start, moduleRequest.end)),
      typeOnly: false,
      isDynamic: true,
    })),
  ];
  return statements.flatMap(({ start, specifier, typeOnly, isDynamic }) =>
    specifier === undefined ? [] : [{ specifier, line: lineAt(text, start), typeOnly, isDynamic }],
  );
}

/** Calls `look` for every node of the file, with the node it hangs on. */
export function walk(file: SourceFile, look: (node: SyntaxNode, parent: SyntaxNode) => void): void {
  const visit = (value: unknown, parent: SyntaxNode): void => {
    if (Array.isArray(value)) return value.forEach((item) => visit(item, parent));
    if (!isNode(value)) return;
    look(value, parent);
    for (const child of Object.values(value)) visit(child, value);
  };
  const { program } = parseSync(file.path, file.text);
  visit(program.body, { type: "Program", start: 0 });
}

export function isNode(value: unknown): value is SyntaxNode {
  return typeof value === "object" && value !== null && "type" in value && "start" in value;
}

export function show(violations: readonly Violation[]): string[] {
  return violations.map(({ path, line, problem }) => `${path}:${line} ${problem}`);
}
