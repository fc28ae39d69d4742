import { SagaboxError } from "../errors/index.ts";
import { randomBytes, systemClock } from "../runtime/index.ts";
import { quotedSchema, textArray, type Queryable } from "../storage/index.ts";
import type { BlobReference } from "../message/index.ts";
import type { BlobHome } from "./blob-store.ts";
import { ledgerStatements } from "./statements.ts";

/** Knows what lies in which store and who needs it. Both are written where the message is, with the same fate. */
export class Ledger {
  readonly #database: BlobHome["database"];
  readonly #sql: ReturnType<typeof ledgerStatements>;
  #home: string | undefined;

  constructor({ database, schema }: BlobHome) {
    this.#database = database;
    this.#sql = ledgerStatements(quotedSchema(schema));
  }

  /** Which database this is: the beginning of every key made here. Whoever is in a transaction needs no second connection. */
  async home(tx?: Queryable): Promise<string> {
    if (this.#home !== undefined) return this.#home;
    const { rows } = await (tx ?? this.#database).run<{ id: string }>(this.#sql.home);
    this.#home = rows[0]?.id ?? "";
    return this.#home;
  }

  /** Whether a key was made here. */
  async isOwn(key: string): Promise<boolean> {
    return key.startsWith(`${await this.home()}/`);
  }

  async newKey(tx?: Queryable): Promise<string> {
    const day = new Date(systemClock.wallMs()).toISOString().slice(0, 10);
    return `${await this.home(tx)}/${day}/${Buffer.from(randomBytes(16)).toString("hex")}`;
  }

  async note(
    tx: Queryable | undefined,
    { key, store, bytes, sha256 }: BlobReference,
    usedBy: string | null,
  ): Promise<void> {
    await (tx ?? this.#database).run(this.#sql.note, [key, store, bytes, sha256, usedBy]);
  }

  /** From now on they are needed by this message. What another database stored, that one looks after. */
  async use(tx: Queryable | undefined, keys: readonly string[], usedBy: string): Promise<void> {
    const home = await this.home(tx);
    const own = [...new Set(keys.filter((key) => key.startsWith(`${home}/`)))].toSorted();
    if (own.length === 0) return;
    const { rows } = await (tx ?? this.#database).run<{ key: string }>(this.#sql.use, [
      textArray(own),
      usedBy,
    ]);
    if (rows.length < own.length) throw gone();
  }
}

function gone(): SagaboxError<"CLAIM_MISSING"> {
  return new SagaboxError(
    "CLAIM_MISSING",
    "An attachment in this message is not stored here any more: nobody needed it for the whole retention. Attach it again.",
  );
}
