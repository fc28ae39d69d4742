import type { Param } from "../database.ts";
import { hasMethod } from "./library-shape.ts";
import type { Library, LibraryRows, TransactionAdapter } from "./library.ts";

/** The `tx` of postgres.js's `sql.begin(async (tx) => …)`. `begin?: never` rejects the root `sql` object at compile time. */
export interface PostgresJsTx {
  unsafe: (...args: never[]) => unknown;
  savepoint: (...args: never[]) => unknown;
  begin?: never;
}

/** The root `sql` of postgres.js. */
interface PostgresJsSql<Tx> {
  begin(options: string, work: (tx: Tx) => Promise<unknown>): Promise<unknown>;
}

/** `count` is the number of rows returned or written. The array contains only the returned rows. */
type PostgresJsRows = object[] & { readonly count?: number | null };

interface PostgresJsCallable {
  unsafe(text: string, params: readonly Param[], options: { prepare: boolean }): Promise<PostgresJsRows>;
}

export const postgresJs: Library = {
  name: "postgres.js",
  call: "sql.begin(async (tx) => …)",
  isTransaction: (value) =>
    hasMethod(value, "unsafe") && hasMethod(value, "savepoint") && !("begin" in value),
  isRoot: (value) => hasMethod(value, "unsafe") && hasMethod(value, "begin") && hasMethod(value, "reserve"),
  query: queryPostgresJs,
};

/** Runs a statement on the `tx` of postgres.js. */
export async function queryPostgresJs(
  tx: object,
  text: string,
  params: readonly Param[],
): Promise<LibraryRows> {
  const rows = await (tx as PostgresJsCallable).unsafe(text, params, { prepare: true });
  return { rows: toSnakeCaseRows(rows), rowCount: rows.count ?? rows.length };
}

// The user's `transform` (postgres.camel, .pascal, .kebab) also renames the columns of sagabox's results.
function toSnakeCaseRows(rows: readonly object[]): readonly object[] {
  const [first = {}] = rows;
  if (Object.keys(first).every((name) => name === toSnakeCase(name))) return [...rows];
  return rows.map((row) =>
    Object.fromEntries(
      Object.entries(row).map(([name, value]: [string, unknown]) => [toSnakeCase(name), value]),
    ),
  );
}

function toSnakeCase(name: string): string {
  const plain = name.replaceAll("-", "_").replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return plain.replace(/^_/, "");
}

/**
 * Lets handlers, `tx` steps and `bus.transaction()` use postgres.js: `tx` is then what `sql.begin` gives. sagabox's relay and
 * its sessions still use `pg`.
 */
export function postgresJsTransactions<Tx extends object>(sql: PostgresJsSql<Tx>): TransactionAdapter<Tx> {
  return {
    name: postgresJs.name,
    query: (tx, text, params) => queryPostgresJs(tx, text, params),
    run: (work, { isolation }) => sql.begin(`isolation level ${isolation}`, work),
  };
}
