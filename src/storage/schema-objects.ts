import { migrations } from "./migrations.generated.ts";

const CREATE_STATEMENT = /create (?:or replace )?(?:table|view|function|sequence) \{schema\}\.([a-z_]+)/g;
const PARTITION = /_(?:\d+|default)$/;

let objectNames: ReadonlySet<string> | undefined;

/** Whether the server speaks of a table, view, function or sequence of ours: where a right lacks it tells no schema. */
export function mentionsOwnObject(message: string): boolean {
  objectNames ??= new Set([
    "schema_migration",
    ...migrations.flatMap(({ sql }) => Array.from(sql.matchAll(CREATE_STATEMENT), ([, name = ""]) => name)),
  ]);
  for (const [word] of message.matchAll(/\w+/g))
    if (objectNames.has(word.replace(PARTITION, ""))) return true;
  return false;
}
