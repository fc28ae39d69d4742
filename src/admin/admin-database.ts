import { SagaboxError } from "../errors/index.ts";
import { ensurePartitions } from "../outbox/index.ts";
import {
  type Database,
  explainPostgresError,
  migrateUp,
  type Migration,
  type OwnedTransaction,
  type Queryable,
} from "../storage/index.ts";
import { outboxStatements } from "./outbox/statements.ts";

/** The part of a database that operator actions use. */
export interface AdminDatabase extends Pick<Database, "run"> {
  begin(...options: Parameters<Database["begin"]>): Promise<AdminTransaction>;
}

export type AdminTransaction = Pick<OwnedTransaction, "run" | "commit" | "rollback">;

/** Wraps a database so that its errors say what an operator can do about them. `schema` must be quoted already. */
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

/** Returns true if the role of this connection may read keys and error texts, which viewers may not. `schema` must be quoted. */
export async function canReadContents(database: Queryable, schema: string): Promise<boolean> {
  const { rows } = await database.run<{ open: boolean }>(outboxStatements(schema).open);
  return rows[0]?.open === true;
}

/** The error for a search by key with a role that may not read keys. */
export function keysNotReadable(): SagaboxError {
  return new SagaboxError(
    "STORAGE_PERMISSION_DENIED",
    "Keys are not for viewers: finding messages by key needs the operator role, see `sagabox roles sql`.",
  );
}

/**
 * Applies the pending migrations and creates the partitions of the next days, so that attaching them later does not block
 * writers. Resolves with the applied migrations.
 */
export async function migrateSchema(database: Database, schema: string): Promise<readonly Migration[]> {
  const applied = await migrateUp(database, schema);
  await ensurePartitions(database, schema);
  return applied;
}
