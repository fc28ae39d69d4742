import { errorText, isSagaboxError, SagaboxError } from "../errors/index.ts";
import { isRaisedByUserCode } from "../retry/index.ts";
import { migrations } from "./migrations.generated.ts";

export const SQLSTATE = {
  divisionByZero: "22012",
  invalidText: "22P02",
  uniqueViolation: "23505",
  checkViolation: "23514",
  featureNotSupported: "0A000",
  dependentObjects: "2BP01",
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
  readOnlyTransaction: "25006",
  inFailedTransaction: "25P02",
} as const;

export function sqlState(error: unknown): string | undefined {
  if (typeof error !== "object" || error === null || !("code" in error)) return undefined;
  // EPIPE looks like a SQLSTATE but is Node's code for a lost connection, and Prisma numbers its errors from P1000.
  return typeof error.code === "string" && /^(?!EPIPE|P[1-9])[0-9A-Z]{5}$/.test(error.code)
    ? error.code
    : undefined;
}

// With these SQLSTATEs the server ends the session. A refused write means that the connection leads to a standby,
// or was made in a read-only phase and stays read-only for as long as it lives.
const SESSION_ENDED = /^(08...|57P..|25P03|25P04|25006)$/;

/** True if the server answered with an error and keeps the session; otherwise the connection must not be used again. */
export function sessionSurvives(error: unknown): boolean {
  const state = sqlState(error);
  return state !== undefined && !SESSION_ENDED.test(state);
}

/** Whether the server refused a write because it is read-only. A trigger of the user can raise the same SQLSTATE. */
export function isReadOnlyRefusal(error: unknown): boolean {
  return sqlState(error) === SQLSTATE.readOnlyTransaction && !isRaisedByUserCode(error);
}

/** Turns the refusal of a write by a read-only server into an error that says what to do. Other errors pass unchanged. */
export function explainReadOnly(error: unknown): unknown {
  if (!isReadOnlyRefusal(error)) return error;
  return readOnlyDatabase(errorText(error), error);
}

export function readOnlyDatabase(detail: string, cause?: unknown): SagaboxError {
  return new SagaboxError(
    "STORAGE_READ_ONLY",
    `The database refuses to write (${detail}). The connection leads to a standby, or the server, the database, the ` +
      "role or this transaction is read-only (default_transaction_read_only, SET TRANSACTION READ ONLY). " +
      "Connect to the primary with a role that may write, or wait until the read-only phase is over.",
    { cause },
  );
}

/** Describes a failure to connect. Such a failure never counts as an attempt of a message. */
export function connectFailure(error: unknown): unknown {
  if (isSagaboxError(error)) return error;
  return new SagaboxError("STORAGE_UNAVAILABLE", `${connectProblem(error)} (${describeDetail(error)}).`, {
    cause: error,
  });
}

function connectProblem(error: unknown): string {
  const state = sqlState(error) ?? "";
  if (state.startsWith("28")) return "The database refused the login; check user and password";
  if (state === "3D000") return "The database does not exist; create it or correct the address";
  if (state === "53300") return "The database has no free connection slots";
  if (state.startsWith("57P")) return "The database is starting up or shutting down";
  return "The database cannot be reached; check the address and that the server runs";
}

// Node reports several refused addresses as one error whose own text is empty.
function describeDetail(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0) return describeDetail(error.errors[0]);
  return error instanceof Error && error.message === "" ? error.name : errorText(error);
}

const NOT_MIGRATED: readonly string[] = [
  SQLSTATE.undefinedTable,
  SQLSTATE.undefinedColumn,
  SQLSTATE.undefinedFunction,
  SQLSTATE.invalidSchema,
];

/** The role that needs the missing right, as `sagabox roles sql` names it. */
export type NeededRole =
  "owner" | "writer" | "relay" | "consumer" | "saga" | "viewer" | "operator" | "privacy";

// Roles in whose transactions statements of the user run as well.
const BUSINESS_ROLES: readonly (NeededRole | undefined)[] = ["writer", "consumer"];

/** Turns errors of the server that an operator can act on into errors that say what to do. Other errors pass unchanged. */
export function explainPostgresError(error: unknown, schema: string, needs?: NeededRole): unknown {
  if (isSagaboxError(error)) return error;
  const state = sqlState(error);
  const ours = error instanceof Error && error.message.includes(schema.replaceAll('"', ""));
  if (state !== undefined && NOT_MIGRATED.includes(state) && ours) {
    return new SagaboxError(
      "STORAGE_NOT_MIGRATED",
      `Schema ${schema} lacks what this version needs (${(error as Error).message}). ` +
        `${migrateRemedy(schema)} before anything else.`,
      { cause: error },
    );
  }
  const meant = ours || !BUSINESS_ROLES.includes(needs) || mentionsOwnObject(errorText(error));
  if (state === SQLSTATE.insufficientPrivilege && meant) {
    return new SagaboxError(
      "STORAGE_PERMISSION_DENIED",
      `The database role may not do this (${(error as Error).message}). ${permissionRemedy(schema, needs)}`,
      { cause: error },
    );
  }
  return error;
}

/** Adds SAGABOX_SCHEMA to the command if the schema is not the default one. */
export function migrateRemedy(schema: string): string {
  const name = schema.replaceAll('"', "");
  const run =
    name === "sagabox"
      ? "Run `sagabox migrate up`"
      : `Mend the name if it is a slip, else run \`sagabox migrate up --schema ${name}\``;
  return `${run}, or call bus.migrate()`;
}

function permissionRemedy(schema: string, needs: NeededRole | undefined): string {
  if (needs === undefined) {
    return `Make it a member of one of the roles that \`sagabox roles sql\` makes for schema ${schema}.`;
  }
  const more =
    needs === "writer"
      ? " Sending from the writing process needs --with-optimistic-send there, or set outbox.optimistic to false."
      : "";
  return `It needs the ${needs} role of schema ${schema}: \`sagabox roles sql\` makes it, \`grant sagabox_${needs} to …\` gives it.${more}`;
}

const CREATE_STATEMENT = /create (?:or replace )?(?:table|view|function|sequence) \{schema\}\.([a-z_]+)/g;
const PARTITION = /_(?:\d+|default)$/;

let objectNames: ReadonlySet<string> | undefined;

/**
 * Whether the error names one of our tables, views, functions or sequences. The server omits the schema if a right is
 * missing.
 */
function mentionsOwnObject(message: string): boolean {
  objectNames ??= new Set([
    "schema_migration",
    ...migrations.flatMap(({ sql }) => Array.from(sql.matchAll(CREATE_STATEMENT), ([, name = ""]) => name)),
  ]);
  for (const [word] of message.matchAll(/\w+/g))
    if (objectNames.has(word.replace(PARTITION, ""))) return true;
  return false;
}
