import { errorText, isSagaboxError, SagaboxError } from "../errors/index.ts";
import type { Database, Queryable } from "./database.ts";
import { sqlState } from "./postgres-errors.ts";
import { backend } from "./statements.ts";

const ALREADY_EXISTS = "42P05";
const DOES_NOT_EXIST = "26000";
const ROUNDS = 3;

/**
 * The server says that a prepared statement of ours is there twice, or not at all. Other errors pass unchanged.
 * `isOurs`: the statement is known to be ours; else its name has to show it.
 */
export function explainPooler(error: unknown, isOurs = false): unknown {
  const state = sqlState(error);
  if (state !== ALREADY_EXISTS && state !== DOES_NOT_EXIST) return error;
  const text = errorText(error);
  if (!isOurs && !text.includes('"sagabox.')) return error;
  const other = state === DOES_NOT_EXIST ? " So does SQL that runs DEALLOCATE or DISCARD ALL." : "";
  return poolerUnsupported(`The database lost track of a prepared statement (${text}).${other}`, error);
}

/**
 * Throws `STORAGE_POOLER_UNSUPPORTED` if a connection is not bound to one session of the server. A pooler whose sessions
 * happen to be busy with others may pass; it is found with the first prepared statement, or by the doctor.
 */
export async function assertOwnSessions(database: Database): Promise<void> {
  if (database.size < 2) return;
  const first = await database.session("pooler check");
  try {
    const second = await database.session("pooler check");
    try {
      if (await shareBackend(first, second)) throw poolerUnsupported("Connections share their sessions.");
    } finally {
      second.release();
    }
  } finally {
    first.release();
  }
}

/** False if `assertOwnSessions` would throw. */
export async function hasOwnSessions(database: Database): Promise<boolean> {
  try {
    await assertOwnSessions(database);
    return true;
  } catch (error) {
    if (isSagaboxError(error, "STORAGE_POOLER_UNSUPPORTED")) return false;
    throw error;
  }
}

// Between two statements, a pooler gives the session of one connection to the next client that needs one.
async function shareBackend(first: Queryable, second: Queryable): Promise<boolean> {
  const before = await readBackendPid(first);
  if (before === undefined) return false;
  for (let round = 1; round <= ROUNDS; round++) {
    if ((await readBackendPid(second)) === before || (await readBackendPid(first)) !== before) return true;
  }
  return false;
}

async function readBackendPid(connection: Queryable): Promise<number | undefined> {
  return (await connection.run<{ pid: number }>(backend)).rows[0]?.pid;
}

function poolerUnsupported(seen: string, cause?: unknown): SagaboxError {
  return new SagaboxError(
    "STORAGE_POOLER_UNSUPPORTED",
    `${seen} A pooler such as PgBouncer in transaction or statement mode does this. ` +
      "Connect to PostgreSQL directly, or set pool_mode = session: sagabox keeps prepared statements, settings and LISTEN on its sessions.",
    { cause },
  );
}
