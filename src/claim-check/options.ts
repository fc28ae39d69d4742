import { SagaboxError } from "../errors/index.ts";
import { milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../options/index.ts";
import { isLocalStore, type BlobStore } from "./blob-store.ts";
import { checkStoreId, postgresStore } from "./postgres-store.ts";

export interface ClaimCheckOptions {
  /** Where large payloads and attachments of this bus go. Default with the Postgres transport: `postgresStore()`. */
  readonly store?: BlobStore;
  /** Stores that are only read from: those of others, and those that this bus wrote to before. */
  readonly stores?: readonly BlobStore[];
  /** Data with more bytes than this leaves its message; never more than the transport can carry. Default 1,048,576. */
  readonly threshold?: number;
  /** The largest payload or attachment, both sent and fetched. Default 67,108,864. */
  readonly maxBytes?: number;
  /** How long everything is kept at least. Default: archive and dead letters together, and a day. */
  readonly retention?: Duration | number;
  /** What an aborted transaction left in a store is deleted after this time, and an upload without progress. Default "1d". */
  readonly grace?: Duration | number;
  /** How long a store outside the database may take without a sign of life. Default "15s". */
  readonly timeout?: Duration | number;
  /** How many may read from such a store, and how many may write to it, at once. Default 8. */
  readonly concurrency?: number;
}

/** How long everything else is kept that may need a blob. */
export interface OtherRetentions {
  readonly archiveMs: number;
  readonly deadLetterMs: number;
  readonly inboxMs: number;
}

export interface ClaimCheckSettings {
  readonly store: BlobStore;
  readonly stores: readonly BlobStore[];
  readonly threshold: number;
  readonly maxBytes: number;
  readonly retentionMs: number;
  readonly graceMs: number;
  readonly timeoutMs: number;
  readonly concurrency: number;
}

const KNOWN = [
  "store",
  "stores",
  "threshold",
  "maxBytes",
  "retention",
  "grace",
  "timeout",
  "concurrency",
] as const;
const DAY_MS = 86_400_000;
const MB = 1_048_576;

/** Undefined when there is none: `false`, or nothing said where a broker may lead to those who share no database. */
export function readClaimCheckSettings(
  options: ClaimCheckOptions | false | undefined,
  isHome: boolean,
  others: OtherRetentions,
): ClaimCheckSettings | undefined {
  if (options === false || (options === undefined && !isHome)) return undefined;
  const given = options ?? {};
  rejectUnknownKeys("claimCheck", given, KNOWN);
  const store = given.store ?? (isHome ? postgresStore() : noStore());
  const stores = given.stores ?? [];
  assertStores([store, ...stores]);
  return Object.freeze({
    store,
    stores,
    threshold: wholeNumber("claimCheck.threshold", given.threshold ?? MB, { min: 1_024, max: 64 * MB }),
    maxBytes: wholeNumber("claimCheck.maxBytes", given.maxBytes ?? 64 * MB, { min: 1_024, max: 5_120 * MB }),
    retentionMs: readRetentionMs(given.retention, others),
    graceMs: milliseconds("claimCheck.grace", given.grace ?? DAY_MS, { min: DAY_MS / 24, max: 30 * DAY_MS }),
    timeoutMs: milliseconds("claimCheck.timeout", given.timeout ?? "15s", { min: 100, max: 3_600_000 }),
    concurrency: wholeNumber("claimCheck.concurrency", given.concurrency ?? 8, { min: 1, max: 1_000 }),
  });
}

// A message that is sent again on the last day of the archive can die at a consumer elsewhere and be replayed there on
// the last day of its dead letters.
function readRetentionMs(
  wish: Duration | number | undefined,
  { archiveMs, deadLetterMs, inboxMs }: OtherRetentions,
): number {
  const least = Math.max(archiveMs, deadLetterMs, inboxMs) + DAY_MS;
  const most = 7_400 * DAY_MS;
  if (wish === undefined) return Math.min(most, Math.max(least, archiveMs + deadLetterMs + DAY_MS));
  const asked = milliseconds("claimCheck.retention", wish, { max: most });
  if (asked >= least) return asked;
  const daysText = (ms: number): string => `${Math.ceil(ms / DAY_MS)} days`;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `claimCheck.retention is ${daysText(asked)}, but must be at least ${daysText(least)}: a message of the archive ` +
      `(${daysText(archiveMs)}), a dead letter (${daysText(deadLetterMs)}) or a redelivery that is still recognised ` +
      `(${daysText(inboxMs)}) would come back without its payload.`,
  );
}

function assertStores(stores: readonly BlobStore[]): void {
  const ids = new Set<string>();
  for (const store of stores) {
    const methods = ["put", "get", "delete", "list"] as const;
    if (
      typeof store !== "object" ||
      store === null ||
      methods.some((name) => typeof store[name] !== "function")
    ) {
      throw invalid(
        "claimCheck.store and .stores must be stores: postgresStore(), fileStore(), s3Store() or your own.",
      );
    }
    const id = checkStoreId("The id of a store", store.id);
    if (ids.has(id))
      throw invalid(`Two stores of claimCheck have the id "${id}". Give one of them another \`id\`.`);
    ids.add(id);
  }
  if (stores.filter(isLocalStore).length > 1) throw invalid("claimCheck has more than one postgresStore().");
}

function noStore(): never {
  throw invalid(
    "claimCheck.store is missing. Consumers behind a broker may use another database, so say where they all can read: " +
      "s3Store(), fileStore(), or postgresStore() if they share this one.",
  );
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
