import { SagaboxError } from "../errors/index.ts";
import { option, Problems, readOptions, type OptionsFrom, type SettingsFrom } from "../options/index.ts";
import { isLocalStore, type BlobStore } from "./blob-store.ts";
import { checkStoreId, postgresStore } from "./postgres-store.ts";

const DAY_MS = 86_400_000;
const MAX_RETENTION_MS = 7_400 * DAY_MS;
const MB = 1_048_576;

export const claimCheckOptions = {
  /** The store that this bus writes large payloads and attachments to. Default with the Postgres transport: `postgresStore()`. */
  store: option.value<BlobStore>({ accepts: "BlobStore" }),
  /** Stores that this bus only reads from: stores of other services, and stores it wrote to before. */
  stores: option.value<readonly BlobStore[]>({ accepts: "BlobStore[]", default: [] }),
  /** Payloads with more bytes than this are stored outside the message. The transport's limit also applies. Default 1,048,576. */
  threshold: option.number({ default: MB, min: 1_024, max: 64 * MB }),
  /** The maximum size of a payload or attachment in bytes, sent or fetched. Default 67,108,864. */
  maxBytes: option.number({ default: 64 * MB, min: 1_024, max: 5_120 * MB }),
  /** The minimum time that blobs are kept. Default: the retentions of archive and dead letters together, plus one day. */
  retention: option.duration({ max: MAX_RETENTION_MS }),
  /** The time after which leftovers of rolled-back transactions and uploads without progress are deleted. Default "1d". */
  grace: option.duration({ default: "1d", min: DAY_MS / 24, max: 30 * DAY_MS }),
  /** How long a store outside the database may make no progress. Default "15s". */
  timeout: option.duration({ default: "15s", min: 100, max: 3_600_000 }),
  /** The maximum number of concurrent reads, and of concurrent writes, of such a store. Default 8. */
  concurrency: option.number({ default: 8, min: 1, max: 1_000 }),
};

/** Options of the claim check, which stores large payloads and attachments outside messages. */
export interface ClaimCheckOptions extends OptionsFrom<typeof claimCheckOptions> {}

/** The retentions of rows that may refer to a blob. */
export interface OtherRetentions {
  readonly archiveMs: number;
  readonly deadLetterMs: number;
  readonly inboxMs: number;
}

export interface ClaimCheckSettings extends SettingsFrom<typeof claimCheckOptions> {
  readonly store: BlobStore;
  readonly retentionMs: number;
}

/**
 * Checks the options and adds defaults. Returns undefined if claim checks are off: `false`, or no options with a broker,
 * whose consumers may not share the database. Throws OPTIONS_INVALID.
 */
export function readClaimCheckSettings(
  options: ClaimCheckOptions | false | undefined,
  isHome: boolean,
  others: OtherRetentions,
): ClaimCheckSettings | undefined {
  if (options === false || (options === undefined && !isHome)) return undefined;
  const problems = new Problems();
  const settings = problems.collect(() => readOptions("claimCheck", claimCheckOptions, options ?? {}));
  const store = problems.collect(() => options?.store ?? (isHome ? postgresStore() : noStore()));
  if (store !== undefined) problems.collect(() => assertStores([store, ...(options?.stores ?? [])]));
  const retentionMs = problems.collect(() => checkRetentionMs(settings?.retentionMs, others));
  problems.throwIfAny("The options of claimCheck");
  return Object.freeze({ ...settings, store, retentionMs }) as ClaimCheckSettings;
}

// A message republished on the last day of the archive can become a dead letter of another service, and be replayed there
// on the last day of that dead letter.
function checkRetentionMs(
  retentionMs: number | undefined,
  { archiveMs, deadLetterMs, inboxMs }: OtherRetentions,
): number {
  const minMs = Math.max(archiveMs, deadLetterMs, inboxMs) + DAY_MS;
  if (retentionMs === undefined) {
    return Math.min(MAX_RETENTION_MS, Math.max(minMs, archiveMs + deadLetterMs + DAY_MS));
  }
  if (retentionMs >= minMs) return retentionMs;
  const daysText = (ms: number): string => `${Math.ceil(ms / DAY_MS)} days`;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `claimCheck.retention is ${daysText(retentionMs)}, but must be at least ${daysText(minMs)}: a message of the archive ` +
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
    "claimCheck.store is missing. Consumers behind a broker may use another database, so name a store that all can read: " +
      "s3Store(), fileStore(), or postgresStore() if they share this one.",
  );
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
