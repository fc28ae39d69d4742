import { readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");

/** An option as its source file declares it. */
export interface DeclaredOption {
  readonly name: string;
  /** Its doc comment without the default. */
  readonly meaning: string;
  /** The default that its doc comment names. */
  readonly default: string | undefined;
  /** Its type, if it is declared in an interface. */
  readonly type?: string;
}

/** Returns the options of an interface in a source file, in their order. */
export function readInterface(path: string, name: string): readonly DeclaredOption[] {
  const body = findBody(path, new RegExp(`^export interface ${name}\\b[^{]*\\{\\n([^]*?)^\\}`, "m"), name);
  const members = body.matchAll(/(?: {2}\/\*\*([^]*?)\*\/\n)? {2}readonly (\w+)\??: ([^]*?);\n(?! {4})/g);
  return [...members].map(([, comment = "", option = "", type = ""]) => ({
    ...readComment(option, comment),
    type: type.replace(/\s+/g, " "),
  }));
}

/** Returns the options of a table in a source file, in their order. */
export function readTable(path: string, name: string): readonly DeclaredOption[] {
  const body = findBody(path, new RegExp(`^export const ${name} = \\{\\n([^]*?)^\\}`, "m"), name);
  const members = body.matchAll(/(?:^ {2}\/\*\*((?:(?!\*\/)[^])*)\*\/\n)?^ {2}(\w+): /gm);
  return [...members].map(([, comment = "", option = ""]) => readComment(option, comment));
}

function findBody(path: string, pattern: RegExp, name: string): string {
  const body = pattern.exec(readFileSync(join(root, path), "utf8"))?.[1];
  if (body === undefined) throw new Error(`${path} does not declare ${name}.`);
  return body;
}

function readComment(name: string, comment: string): DeclaredOption {
  const text = comment
    .replace(/\n\s*\*/g, " ")
    .replace(/\s+/g, " ")
    .trim();
  const found = /(?:^| )Default:? ((?:[^.]|\.(?! |$))+)\.(?= |$)/.exec(text);
  return {
    name,
    meaning: (found === null ? text : text.replace(found[0], "")).trim(),
    default: found?.[1],
  };
}
