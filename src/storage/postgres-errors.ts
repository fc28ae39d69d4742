import { SagaboxError, isSagaboxError } from "../errors/index.ts";

export const SQLSTATE = {
  uniqueViolation: "23505",
  checkViolation: "23514",
  undefinedTable: "42P01",
  undefinedColumn: "42703",
  undefinedFunction: "42883",
  invalidSchema: "3F000",
  insufficientPrivilege: "42501",
  serializationFailure: "40001",
  deadlockDetected: "40P01",
  lockNotAvailable: "55P03",
  queryCanceled: "57014",
  objectNotInState: "55000",
  duplicateTable: "42P07",
  duplicateSchema: "42P06",
} as const;

export function sqlState(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  return typeof error.code === "string" && /^[0-9A-Z]{5}$/.test(error.code) ? error.code : undefined;
}

const NOT_MIGRATED: readonly string[] = [
  SQLSTATE.undefinedTable,
  SQLSTATE.undefinedColumn,
  SQLSTATE.undefinedFunction,
  SQLSTATE.invalidSchema,
];

/** Turns the server's answers that a person can act on into errors that say how; others pass unchanged. */
export function explainPostgresError(error: unknown, schema: string): unknown {
  if (isSagaboxError(error)) return error;
  const state = sqlState(error);
  const ours = error instanceof Error && error.message.includes(schema.replaceAll('"', ""));
  if (state !== undefined && NOT_MIGRATED.includes(state) && ours) {
    return new SagaboxError(
      "STORAGE_NOT_MIGRATED",
      `Schema ${schema} lacks what this version needs (${(error as Error).message}). ` +
        "Run `sagabox migrate up`, or call bus.migrate() before anything else.",
      { cause: error },
    );
  }
  if (state === SQLSTATE.insufficientPrivilege) {
    return new SagaboxError(
      "STORAGE_PERMISSION_DENIED",
      `The database role may not do this (${(error as Error).message}). ` +
        `Grant it the rights on schema ${schema}, or connect with the role that ran the migrations.`,
      { cause: error },
    );
  }
  return error;
}
