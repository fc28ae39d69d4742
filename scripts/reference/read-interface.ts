import { readFileSync } from "node:fs";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");

/** An option as its interface declares it. */
export interface DeclaredOption {
  readonly name: string;
  readonly isRequired: boolean;
  readonly type: string;
  /** What its comment says, without the default. */
  readonly meaning: string;
  /** What its comment says about the default. */
  readonly default: string | undefined;
}

/** The options of an interface in a source file, in their order. */
export function readInterface(path: string, name: string): readonly DeclaredOption[] {
  const source = readFileSync(join(root, path), "utf8");
  const body = new RegExp(`^export interface ${name}\\b[^{]*\\{\\n([^]*?)^\\}`, "m").exec(source)?.[1];
  if (body === undefined) throw new Error(`${path} declares no interface ${name}.`);
  const members = body.matchAll(/(?: {2}\/\*\*([^]*?)\*\/\n)? {2}readonly (\w+)(\??): ([^]*?);\n(?! {4})/g);
  return [...members].map(([, comment = "", option = "", mark, type = ""]) => {
    const text = comment
      .replace(/\n\s*\*/g, " ")
      .replace(/\s+/g, " ")
      .trim();
    const found = /(?:^| )Default:? ((?:[^.]|\.(?! |$))+)\.(?= |$)/.exec(text);
    return {
      name: option,
      isRequired: mark !== "?",
      type: type.replace(/\s+/g, " "),
      meaning: (found === null ? text : text.replace(found[0], "")).trim(),
      default: found?.[1],
    };
  });
}
