import { onClientTransactionEnd } from "./library-client.ts";
import { hasMethod, isObject } from "./library-shape.ts";
import type { Library, LibraryClient, TransactionAdapter } from "./library.ts";

/** The `EntityManager` of a TypeORM transaction, or its `QueryRunner`. `isInitialized?: never` rejects a `DataSource`. */
export type TypeOrmTx =
  | {
      query: (...args: never[]) => unknown;
      getRepository: (...args: never[]) => unknown;
      isInitialized?: never;
    }
  | { query: (...args: never[]) => unknown; readonly isTransactionActive: boolean; readonly manager: object };

interface TypeOrmDataSource<Tx> {
  transaction(
    isolation: "READ COMMITTED" | "REPEATABLE READ" | "SERIALIZABLE",
    work: (manager: Tx) => Promise<unknown>,
  ): Promise<unknown>;
}

interface QueryRunner {
  readonly isTransactionActive?: boolean;
  connect(): Promise<unknown>;
}

const ISOLATIONS = {
  "read committed": "READ COMMITTED",
  "repeatable read": "REPEATABLE READ",
  serializable: "SERIALIZABLE",
} as const;

function findRunner(value: object): QueryRunner | undefined {
  const runner: unknown =
    "isTransactionActive" in value ? value : (value as { queryRunner?: unknown }).queryRunner;
  return isObject(runner) && hasMethod(runner, "connect") ? (runner as unknown as QueryRunner) : undefined;
}

/** The runner of an open transaction has its connection, which `connect()` returns. */
async function findClient(tx: object): Promise<LibraryClient | undefined> {
  const client = await findRunner(tx)?.connect();
  return isObject(client) && hasMethod(client, "getTransactionStatus")
    ? (client as unknown as LibraryClient)
    : undefined;
}

export const typeOrm: Library = {
  name: "TypeORM",
  call: "dataSource.transaction(async (manager) => …)",
  isTransaction: (value) => hasMethod(value, "query") && findRunner(value)?.isTransactionActive === true,
  isRoot: (value) =>
    (hasMethod(value, "getRepository") && hasMethod(value, "query")) ||
    ("isTransactionActive" in value && hasMethod(value, "startTransaction")),
  client: findClient,
  onEnd: (tx, listener) => {
    void findClient(tx).then((client) => onClientTransactionEnd(client, listener));
    return true;
  },
  query: () => Promise.reject(new TypeError('sagabox works with TypeORM on type "postgres" only.')),
};

/** Lets handlers, `tx` steps and `bus.transaction()` use TypeORM: `tx` is then the transaction's `EntityManager`. */
export function typeOrmTransactions<Tx extends object>(
  dataSource: TypeOrmDataSource<Tx>,
): TransactionAdapter<Tx> {
  return {
    name: typeOrm.name,
    client: findClient,
    query: (tx, text, params) => typeOrm.query(tx, text, params),
    run: (work, { isolation }) => dataSource.transaction(ISOLATIONS[isolation], work),
  };
}
