import type { Param } from "../database.ts";
import { hasMethod } from "./library-shape.ts";
import type { Library, LibraryRows, TransactionAdapter } from "./library.ts";

/** A transaction of Kysely. On the root object, `isTransaction` is not `true`. */
export interface KyselyTx {
  readonly isTransaction: true;
  executeQuery: (...args: never[]) => unknown;
}

/** The root object of Kysely. */
interface KyselyDatabase<Tx> {
  transaction(): {
    setIsolationLevel(level: "read committed" | "repeatable read" | "serializable"): {
      execute(work: (trx: Tx) => Promise<unknown>): Promise<unknown>;
    };
  };
}

interface KyselyResult {
  readonly rows: readonly object[];
  /** Set for statements that write, whether they return rows or not. */
  readonly numAffectedRows?: bigint;
}

interface KyselyExecutor {
  executeQuery(query: object): Promise<KyselyResult>;
}

export const kysely: Library = {
  name: "Kysely",
  call: "db.transaction().execute(async (trx) => …)",
  isTransaction: (value) =>
    hasMethod(value, "executeQuery") && (value as { isTransaction?: unknown }).isTransaction === true,
  isRoot: (value) =>
    hasMethod(value, "executeQuery") &&
    hasMethod(value, "transaction") &&
    (value as { isTransaction?: unknown }).isTransaction === false,
  query: queryKysely,
};

async function queryKysely(tx: object, text: string, params: readonly Param[]): Promise<LibraryRows> {
  const { rows, numAffectedRows } = await (plain(tx) as unknown as KyselyExecutor).executeQuery({
    sql: text,
    parameters: params,
    query: { kind: "RawNode", sqlFragments: [text], parameters: [] },
    queryId: { queryId: "sagabox" },
  });
  return { rows, rowCount: numAffectedRows === undefined ? rows.length : Number(numAffectedRows) };
}

/** Without the user's plugins, which may rename the columns of sagabox's results. */
function plain(tx: object): object {
  return hasMethod(tx, "withoutPlugins") ? (tx.withoutPlugins() as object) : tx;
}

/** Lets handlers, `tx` steps and `bus.transaction()` use Kysely: `tx` is then a Kysely `Transaction`. */
export function kyselyTransactions<Tx extends object>(db: KyselyDatabase<Tx>): TransactionAdapter<Tx> {
  return {
    name: kysely.name,
    query: (tx, text, params) => queryKysely(tx, text, params),
    run: (work, { isolation }) => db.transaction().setIsolationLevel(isolation).execute(work),
  };
}
