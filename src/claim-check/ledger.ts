import { SagaboxError } from "../errors/index.ts";
import { randomBytes, systemClock } from "../runtime/index.ts";
import { quoteSchema, toArrayLiteral, type Queryable, type Statement } from "../storage/index.ts";
import type { BlobReference, PackedMessage } from "../message/index.ts";
import type { BlobHome } from "./blob-store.ts";
import { collectorStatements, ledgerStatements } from "./statements.ts";

/** The message that needs a blob, from when it is due. */
export type BlobUser = Pick<PackedMessage, "id" | "schedule">;

/**
 * Knows what lies in which store and who needs it. Both are written where the message is, with the same fate. A key has its
 * row before its first byte is stored: while a transaction with that row is open, the collector cannot insert the same key.
 */
export class Ledger {
  readonly #database: BlobHome["database"];
  readonly #sql: ReturnType<typeof ledgerStatements>;
  readonly #discard: Statement;
  #home: string | undefined;

  constructor({ database, schema }: BlobHome) {
    this.#database = database;
    this.#sql = ledgerStatements(quoteSchema(schema));
    this.#discard = collectorStatements(quoteSchema(schema)).discard;
  }

  /** Which database this is: the beginning of every key made here. Whoever is in a transaction needs no second connection. */
  async findHome(tx?: Queryable): Promise<string> {
    if (this.#home !== undefined) return this.#home;
    const { rows } = await (tx ?? this.#database).run<{ id: string }>(this.#sql.home);
    this.#home = rows[0]?.id ?? "";
    return this.#home;
  }

  /** Whether a key was made here. */
  async isOwn(key: string): Promise<boolean> {
    return key.startsWith(`${await this.findHome()}/`);
  }

  async newKey(tx?: Queryable): Promise<string> {
    const day = new Date(systemClock.wallMs()).toISOString().slice(0, 10);
    return `${await this.findHome(tx)}/${day}/${Buffer.from(randomBytes(16)).toString("hex")}`;
  }

  /** Notes a blob that is about to be stored, and the message that needs it. */
  async recordBlob(
    tx: Queryable | undefined,
    { key, store, bytes, sha256 }: BlobReference,
    { id, schedule }: BlobUser,
  ): Promise<void> {
    const due = [schedule?.delayMs ?? null, schedule?.atMs ?? null];
    await (tx ?? this.#database).run(this.#sql.note, [key, store, bytes, sha256, id, ...due]);
  }

  /** Notes an upload that is about to begin, and whose content is not known yet. */
  async reserve(key: string, store: string): Promise<void> {
    await this.#database.run(this.#sql.reserve, [key, store]);
  }

  /** Notes that an upload makes progress. Throws `CLAIM_MISSING` when the collector has given it up. */
  async touch(key: string): Promise<void> {
    const { rowCount } = await this.#database.run(this.#sql.touch, [key]);
    if (rowCount === 0) throw uploadAbandoned();
  }

  /** Ends an upload that was reserved. Throws `CLAIM_MISSING` when the collector has given it up. */
  async complete({ key, bytes, sha256 }: BlobReference): Promise<void> {
    const { rowCount } = await this.#database.run(this.#sql.complete, [key, bytes, sha256]);
    if (rowCount === 0) throw uploadAbandoned();
  }

  /** Removes the row of an upload that failed. False when the collector has done so before. */
  async discard(key: string): Promise<boolean> {
    const { rowCount } = await this.#database.run(this.#discard, [key]);
    return rowCount > 0;
  }

  /** Notes that the message needs these blobs. Blobs of another database are that database's business. */
  async recordUse(
    tx: Queryable | undefined,
    keys: readonly string[],
    { id, schedule }: BlobUser,
  ): Promise<void> {
    const home = await this.findHome(tx);
    const own = [...new Set(keys.filter((key) => key.startsWith(`${home}/`)))].toSorted();
    if (own.length === 0) return;
    const { rows } = await (tx ?? this.#database).run<{ key: string }>(this.#sql.use, [
      toArrayLiteral(own),
      id,
      schedule?.delayMs ?? null,
      schedule?.atMs ?? null,
    ]);
    if (rows.length < own.length) throw attachmentGone();
  }
}

/** The collector deleted what had been uploaded so far. */
export function uploadAbandoned(): SagaboxError<"CLAIM_MISSING"> {
  return new SagaboxError(
    "CLAIM_MISSING",
    "This upload made no progress for the whole `claimCheck.grace`, so what was there of it has been deleted. Attach it again.",
  );
}

function attachmentGone(): SagaboxError<"CLAIM_MISSING"> {
  return new SagaboxError(
    "CLAIM_MISSING",
    "An attachment in this message is not stored here any more: nobody needed it for the whole retention. Attach it again.",
  );
}
