import { migrations } from "./migrations.generated.ts";

const CREATED = /create (?:or replace )?(?:table|view|function|sequence) \{schema\}\.([a-z_]+)/g;
const PARTITION = /_(?:\d+|default)$/;

let ours: ReadonlySet<string> | undefined;

/** Whether the server speaks of a table, view, function or sequence of ours: where a right lacks it tells no schema. */
export function namesOneOfOurs(message: string): boolean {
  ours ??= new Set([
    "schema_migration",
    ...migrations.flatMap(({ sql }) => Array.from(sql.matchAll(CREATED), ([, name = ""]) => name)),
  ]);
  for (const [word] of message.matchAll(/\w+/g)) if (ours.has(word.replace(PARTITION, ""))) return true;
  return false;
}
