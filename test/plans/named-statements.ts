import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

const SOURCES = join(import.meta.dirname, "../../src");
/** What the names of statements are put together from. */
const PARTS: Readonly<Record<string, readonly string[]>> = {
  name: ["", "_guarded"],
  table: ["outbox", "queue"],
};

/** The names of all statements in src/, read from its text. */
export function namedStatements(): readonly string[] {
  const files = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).filter(
    (name) => name.endsWith(".ts") && !/\.test(-d)?\.ts$/.test(name),
  );
  const names = files.flatMap((file) => {
    const text = readFileSync(join(SOURCES, file), "utf8");
    return [...text.matchAll(/\bdefineStatement\(\s*["`](sagabox\.[^"`]+)["`]/g)].flatMap(([, name]) =>
      expand(name ?? ""),
    );
  });
  return [...new Set(names)].toSorted();
}

function expand(name: string): readonly string[] {
  const [whole, part = ""] = /\$\{(\w+)\}/.exec(name) ?? [];
  if (whole === undefined) return [name];
  return (PARTS[part] ?? [part]).flatMap((value) => expand(name.replace(whole, value)));
}
