import { SagaboxError } from "../errors/index.ts";
import { randomBytes, systemClock } from "../runtime/index.ts";
import { quoteSchema, toArrayLiteral, type Queryable, type Statement } from "../storage/index.ts";
import type { BlobReference, PackedMessage } from "../message/index.ts";
import type { BlobHome } from "./blob-store.ts";
import { collectorStatements, ledgerStatements } from "./statements.ts";

/** The message that uses a blob, from the time it is due. */
export type BlobUser = Pick<PackedMessage, "id" | "schedule">;

/**
 * Records which store holds a blob and which messages use it, in the transaction of the message. The row of a key is
 * written before its first byte: while that transaction is open, the collector's probe of the key has to wait.
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

  /** Returns the id of this database, the prefix of all its keys. Uses `tx` if given, to need no second connection. */
  async findHome(tx?: Queryable): Promise<string> {
    if (this.#home !== undefined) return this.#home;
    const { rows } = await (tx ?? this.#database).run<{ id: string }>(this.#sql.home);
    this.#home = rows[0]?.id ?? "";
    return this.#home;
  }

  /** Whether the key was created in this database. */
  async isOwn(key: string): Promise<boolean> {
    return key.startsWith(`${await this.findHome()}/`);
  }

  async newKey(tx?: Queryable): Promise<string> {
    const day = new Date(systemClock.wallMs()).toISOString().slice(0, 10);
    return `${await this.findHome(tx)}/${day}/${Buffer.from(randomBytes(16)).toString("hex")}`;
  }

  /** Records a blob that is about to be stored, and the message that uses it. */
  async recordBlob(
    tx: Queryable | undefined,
    { key, store, bytes, sha256 }: BlobReference,
    { id, schedule }: BlobUser,
  ): Promise<void> {
    const due = [schedule?.delayMs ?? null, schedule?.atMs ?? null];
    await (tx ?? this.#database).run(this.#sql.note, [key, store, bytes, sha256, id, ...due]);
  }

  /** Records an upload before its first byte, when length and hash are still unknown. */
  async reserve(key: string, store: string): Promise<void> {
    await this.#database.run(this.#sql.reserve, [key, store]);
  }

  /** Records that an upload makes progress. Throws CLAIM_MISSING if the collector has deleted it. */
  async touch(key: string): Promise<void> {
    const { rowCount } = await this.#database.run(this.#sql.touch, [key]);
    if (rowCount === 0) throw uploadAbandoned();
  }

  /** Completes a reserved upload. Throws CLAIM_MISSING if the collector has deleted it. */
  async complete({ key, bytes, sha256 }: BlobReference): Promise<void> {
    const { rowCount } = await this.#database.run(this.#sql.complete, [key, bytes, sha256]);
    if (rowCount === 0) throw uploadAbandoned();
  }

  /** Deletes the row of a failed upload. Returns false if the collector has already deleted it. */
  async discard(key: string): Promise<boolean> {
    const { rowCount } = await this.#database.run(this.#discard, [key]);
    return rowCount > 0;
  }

  /** Records that the message uses these blobs. Ignores blobs of other databases. Throws CLAIM_MISSING if one was deleted. */
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

/** The error for an upload that the collector has deleted. */
export function uploadAbandoned(): SagaboxError<"CLAIM_MISSING"> {
  return new SagaboxError(
    "CLAIM_MISSING",
    "The upload made no progress during `claimCheck.grace`, so the collector deleted it. Attach it again.",
  );
}

function attachmentGone(): SagaboxError<"CLAIM_MISSING"> {
  return new SagaboxError(
    "CLAIM_MISSING",
    "An attachment of this message was deleted, because no message used it for the whole retention. Attach it again.",
  );
}
