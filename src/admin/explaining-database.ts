import { explainPostgresError, type Database, type OwnedTransaction } from "../storage/index.ts";

/** As much of a database as the operations use. */
export interface AdminDatabase extends Pick<Database, "run"> {
  begin(...options: Parameters<Database["begin"]>): Promise<AdminTransaction>;
}

export type AdminTransaction = Pick<OwnedTransaction, "run" | "commit" | "rollback">;

/** The same database, whose errors say what to do where a person can do something. `schema` is quoted already. */
export function explainingDatabase(database: Database, schema: string): AdminDatabase {
  const explain = (error: unknown): never => {
    throw explainPostgresError(error, schema, "operator");
  };
  return {
    run: (statement, params, limits) => database.run<never>(statement, params, limits).catch(explain),
    async begin(options) {
      const tx = await database.begin(options);
      return {
        run: (statement, params, limits) => tx.run<never>(statement, params, limits).catch(explain),
        commit: (last, afterword) => tx.commit(last, afterword),
        rollback: () => tx.rollback(),
      };
    },
  };
}
