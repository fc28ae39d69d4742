import { isSagaboxError, readVerdict, type ErrorCode } from "../errors/index.ts";

/**
 * retryable: the message's own failure, which counts as an attempt. permanent: a retry cannot help.
 * infrastructure: the database, broker or network failed, which does not count as an attempt.
 */
export type FailureKind = "retryable" | "permanent" | "infrastructure";

/** The user's classification of an error. Return undefined to use the default one. */
export type FailureClassifier = (error: unknown) => FailureKind | undefined;

const permanentCodes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "ENVELOPE_INVALID",
  "CLOUD_EVENT_INVALID",
  "MESSAGE_ID_MISSING",
  "MESSAGE_ID_INVALID",
  "MESSAGE_EXPIRED",
  "MESSAGE_KILLS_PROCESS",
  "HEADER_INVALID",
  "KEY_INVALID",
  "TOPIC_INVALID",
  "PRIVACY_SEAL_BROKEN",
  "PRIVACY_ERASED",
  "PRIVACY_SEALED",
  "PRIVACY_SUBJECT_INVALID",
  "CLAIM_INVALID",
  "CLAIM_MISSING",
  "CLAIM_CORRUPT",
  "CLAIM_STORE_UNKNOWN",
  "TRANSACTION_COMMITTED",
]);

const infrastructureCodes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "STORAGE_UNAVAILABLE",
  "STORAGE_POOLER_UNSUPPORTED",
  "STORAGE_READ_ONLY",
  "TRANSPORT_UNREACHABLE",
  "TRANSPORT_TIMEOUT",
  "OUTBOX_LEASE_LOST",
  "COMMIT_UNKNOWN",
  "BUS_STOPPED",
  "PRIVACY_KEYS_UNAVAILABLE",
  "CLAIM_STORE_UNAVAILABLE",
]);

// Lost connections (08), exhausted resources (53), shutdown and crash (57P0x), statement and lock timeouts, conflicts
// between transactions, and a server that has become a read-only standby.
const infrastructureSqlState = /^(08...|53...|57P0.|57014|40001|40P01|55P03|25006)$/;

// Conflicts, timeouts, limits and broken sessions by SQLSTATE. A server that reports one of these may report
// it for ever, so only the first few in a row are free: a statement may always be too slow, need more locks
// (53200) or larger temporary files (53400) than allowed, or run after SET TRANSACTION READ ONLY (25006).
const passingSqlState = /^(08...|53200|53400|57P0.|57014|40001|40P01|55P03|25006)$/;
// The server ended the session because the transaction was idle or open for too long; a handler may always
// take that long.
const sessionLimitSqlState = /^25P0[34]$/;
// User code can raise any SQLSTATE: RAISE in PL/pgSQL, plpy.error, an error of a remote server that dblink or
// a foreign table passes on. A wrong number of parameters is a "protocol violation" (08P01). PostgreSQL
// reports which of its source files raised the error.
const userCodeFile = /^(pl_exec\.c|plpy_\w+\.c|plperl\.c|pltcl\.c|plv8\w*\.\w+|dblink\.c)$/;
const userCodeRoutine = /^(exec_stmt_raise|exec_bind_message|dblink_\w+|pgfdw_\w+)$/;
// The pg driver gives these errors no code.
const driverMessage =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client (was closed|has encountered a connection error) and is not queryable)/;

/**
 * Classifies an error that a handler threw: by its verdict, then by the user's classifier, then by the
 * default rules. A network error of a handler's own call is retryable and not infrastructure, so that a dead
 * address is not retried for ever. The loss of our own database connection arrives as a SagaboxError.
 */
export function classifyFailure(error: unknown, userClassifier?: FailureClassifier): FailureKind {
  // The dedupe row is durable: a retry would be acknowledged as a duplicate, without an effect.
  if (isSagaboxError(error, "TRANSACTION_COMMITTED")) return "permanent";
  const verdict = readVerdict(error);
  if (verdict !== undefined) return verdict.kind === "retry-after" ? "retryable" : "permanent";
  return askClassifier(userClassifier, error) ?? classifyByDefault(error);
}

/**
 * True for an infrastructure failure that a running server reported and that may therefore repeat for ever.
 */
export function mayNeverPass(error: unknown, userClassifier?: FailureClassifier): boolean {
  if (askClassifier(userClassifier, error) !== undefined) return false;
  const isLost = isSagaboxError(error, "STORAGE_UNAVAILABLE");
  if (isSagaboxError(error) && !isLost) return false;
  const states = isLost ? sessionLimitSqlState : passingSqlState;
  return causes(error).some(({ code }) => typeof code === "string" && states.test(code));
}

const KINDS: readonly unknown[] = ["retryable", "permanent", "infrastructure"];

// The classifier gets any thrown value and may throw on an unexpected one. That must not end the process.
function askClassifier(classifier: FailureClassifier | undefined, error: unknown): FailureKind | undefined {
  try {
    const kind = classifier?.(error);
    return KINDS.includes(kind) ? kind : undefined;
  } catch {
    return undefined;
  }
}

function classifyByDefault(error: unknown): FailureKind {
  if (isSagaboxError(error)) {
    if (error.code.startsWith("PAYLOAD_") || permanentCodes.has(error.code)) return "permanent";
    if (infrastructureCodes.has(error.code)) return "infrastructure";
  }
  return causes(error).some(isInfrastructure) ? "infrastructure" : "retryable";
}

// Object mappers wrap the driver's error, so its code may be a few causes down.
function causes(error: unknown): readonly Cause[] {
  const chain: Cause[] = [];
  let current = error;
  while (typeof current === "object" && current !== null && chain.length < 8) {
    chain.push(current);
    current = (current as { cause?: unknown }).cause;
  }
  return chain;
}

interface Cause {
  readonly code?: unknown;
  readonly message?: unknown;
  /** The file and function in the server's source that raised the error. */
  readonly file?: unknown;
  readonly routine?: unknown;
}

function isInfrastructure(cause: Cause): boolean {
  const { code, message } = cause;
  if (typeof code === "string" && infrastructureSqlState.test(code)) return !isRaisedByUserCode(cause);
  return typeof message === "string" && driverMessage.test(message);
}

/**
 * True if user code inside the server (such as RAISE) raised the error, so that its SQLSTATE means nothing
 * here.
 */
export function isRaisedByUserCode(error: unknown): boolean {
  const { file, routine } = (error ?? {}) as Cause;
  if (typeof file === "string" && userCodeFile.test(file)) return true;
  return typeof routine === "string" && userCodeRoutine.test(routine);
}
