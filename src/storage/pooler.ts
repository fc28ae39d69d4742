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
 * happen to be busy with others may pass; it is found with the first prepared statement, or by the doctor. `isDirectUrl`:
 * the connections are those of `directUrl`.
 */
export async function assertOwnSessions(database: Database, isDirectUrl = false): Promise<void> {
  if (database.size < 2) return;
  const isPooled = await findSharing(database).catch((error: unknown) => {
    // The sessions may also share the prepared statements of their settings.
    if (isDirectUrl && isSagaboxError(error, "STORAGE_POOLER_UNSUPPORTED")) return true;
    throw error;
  });
  if (isPooled)
    throw isDirectUrl ? directUrlPooled() : poolerUnsupported("Connections share their sessions.");
}

async function findSharing(database: Database): Promise<boolean> {
  const first = await database.session("pooler check");
  try {
    const second = await database.session("pooler check");
    try {
      return await shareBackend(first, second);
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
    `${seen} A pooler such as PgBouncer in transaction mode does this. Set \`directUrl\` (or SAGABOX_DIRECT_URL) to the address ` +
      "of PostgreSQL without the pooler, or to false in a process that runs no worker. In statement mode nothing works; " +
      "pool_mode = session needs no setting.",
    { cause },
  );
}

function directUrlPooled(): SagaboxError {
  return new SagaboxError(
    "STORAGE_POOLER_UNSUPPORTED",
    "`directUrl` leads through a pooler in transaction mode as well: its connections share their sessions. Set it to the address " +
      "of PostgreSQL itself.",
  );
}

/** The error for a worker without `directUrl` behind a pooler. */
export function sessionsMissing(): SagaboxError {
  return new SagaboxError(
    "STORAGE_POOLER_UNSUPPORTED",
    "A worker listens for notifications and keeps sessions, which a pooler such as PgBouncer in transaction mode does not offer. " +
      "Set `directUrl` to the address of PostgreSQL without the pooler, or call bus.drain() from a cron job instead of bus.run().",
  );
}
