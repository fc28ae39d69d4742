import { isSagaboxError, verdictOf, type ErrorCode } from "../errors/index.ts";

/**
 * retryable: the message's own failure, which costs an attempt. permanent: trying again cannot help.
 * infrastructure: the database, broker or network failed, which costs the message nothing.
 */
export type FailureKind = "retryable" | "permanent" | "infrastructure";

/** The user's own opinion; undefined leaves it to ours. */
export type FailureClassifier = (error: unknown) => FailureKind | undefined;

const permanentCodes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "ENVELOPE_INVALID",
  "MESSAGE_ID_MISSING",
  "MESSAGE_ID_INVALID",
  "MESSAGE_EXPIRED",
  "MESSAGE_KILLS_PROCESS",
  "HEADER_INVALID",
  "KEY_INVALID",
  "TOPIC_INVALID",
]);

const infrastructureCodes: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  "STORAGE_UNAVAILABLE",
  "TRANSPORT_UNREACHABLE",
  "TRANSPORT_TIMEOUT",
  "OUTBOX_LEASE_LOST",
  "COMMIT_UNKNOWN",
  "BUS_STOPPED",
]);

// Lost connections (08), exhausted resources (53), shutdown and crash (57P0x), statement and lock timeouts, conflicts
// between transactions, and a server that has become a read-only standby.
const infrastructureSqlState = /^(08...|53...|57P0.|57014|40001|40P01|55P03|25006)$/;

const socketCodes: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "CONNECTION_CLOSED",
  "CONNECTION_ENDED",
  "CONNECTION_DESTROYED",
  "CONNECT_TIMEOUT", // postgres.js
]);

// The pg driver has no codes for these.
const driverMessage =
  /^(Connection terminated|timeout exceeded when trying to connect|Query read timeout|Client (was closed|has encountered a connection error) and is not queryable)/;

/** A verdict first, then the user's classifier, then what we know about databases, brokers and payloads. */
export function classifyFailure(error: unknown, userClassifier?: FailureClassifier): FailureKind {
  const verdict = verdictOf(error);
  if (verdict !== undefined) return verdict.kind === "retry-after" ? "retryable" : "permanent";
  return userClassifier?.(error) ?? ownOpinion(error);
}

function ownOpinion(error: unknown): FailureKind {
  if (isSagaboxError(error)) {
    if (error.code.startsWith("PAYLOAD_") || permanentCodes.has(error.code)) return "permanent";
    if (infrastructureCodes.has(error.code)) return "infrastructure";
  }
  const chain = causes(error);
  // A handler's own call to somewhere else is its own risk: charged, or a dead address would be tried for ever.
  if (chain.some(isFailedFetch)) return "retryable";
  return chain.some(isInfrastructure) ? "infrastructure" : "retryable";
}

// Object mappers wrap the driver's error, so its code may sit a few causes down.
function causes(error: unknown): readonly object[] {
  const chain: object[] = [];
  let current = error;
  while (typeof current === "object" && current !== null && chain.length < 8) {
    chain.push(current);
    current = (current as { cause?: unknown }).cause;
  }
  return chain;
}

function isFailedFetch(error: object): boolean {
  return error instanceof TypeError && error.message === "fetch failed";
}

function isInfrastructure(error: object): boolean {
  const { code, message } = error as { code?: unknown; message?: unknown };
  if (typeof code === "string" && (socketCodes.has(code) || infrastructureSqlState.test(code))) return true;
  return typeof message === "string" && driverMessage.test(message);
}
