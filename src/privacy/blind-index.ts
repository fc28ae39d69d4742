import { createHmac } from "node:crypto";
import { SagaboxError } from "../errors/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { PrivacyStatements } from "./statements.ts";

const MAX_SUBJECT_LENGTH = 1_024;

/** Computes keyed hashes of values. Equal values have equal hashes, so that rows can be found without storing the value. */
export class BlindIndex {
  readonly #key: () => Uint8Array;

  constructor(key: () => Uint8Array) {
    this.#key = key;
  }

  /** The hash depends on the purpose, so that hashes of one value for two purposes cannot be matched. */
  compute(value: string, purpose: string): string {
    return createHmac("sha256", this.#key())
      .update(JSON.stringify(["sagabox.blind-index", purpose, value]))
      .digest("base64url");
  }

  /** The hash of a data subject, which identifies it in the tables of keys and erasures. */
  subject(subject: unknown): string {
    return this.compute(checkSubject(subject), "sagabox.subject");
  }
}

/** Returns the subject id, or throws PRIVACY_SUBJECT_INVALID without the id in the message. */
export function checkSubject(subject: unknown): string {
  if (typeof subject === "string" && subject.trim() !== "" && subject.length <= MAX_SUBJECT_LENGTH)
    return subject;
  throw new SagaboxError(
    "PRIVACY_SUBJECT_INVALID",
    `A subject must be a string of 1 to ${MAX_SUBJECT_LENGTH} characters that is not blank. Check \`personal.subject\` of the contract.`,
  );
}

/** Rejects a key of blind indexes that differs from the one this database was written with. */
export class IndexGuard {
  readonly #sql: Pick<PrivacyStatements, "fingerprint" | "addFingerprint">;
  readonly #index: BlindIndex;
  #known: string | undefined;

  constructor(sql: Pick<PrivacyStatements, "fingerprint" | "addFingerprint">, index: BlindIndex) {
    this.#sql = sql;
    this.#index = index;
  }

  /** Call it before a search for a subject. A database without a stored fingerprint accepts any key. */
  async check(database: Queryable): Promise<void> {
    await this.#isNoted(database);
  }

  /** Call it before the first key of a subject is stored. It stores the fingerprint of this key if none is stored. */
  async note(tx: Queryable): Promise<void> {
    if (await this.#isNoted(tx)) return;
    // Not cached, because the transaction may be rolled back.
    await tx.run(this.#sql.addFingerprint, [this.#fingerprint()]);
  }

  async #isNoted(database: Queryable): Promise<boolean> {
    const ours = this.#fingerprint();
    if (this.#known === ours) return true;
    const { rows } = await database.run<{ fingerprint: string; own: boolean }>(this.#sql.fingerprint);
    const [first] = rows;
    if (first === undefined) return false;
    if (first.fingerprint !== ours) throw otherIndex();
    if (!first.own) this.#known = ours;
    return true;
  }

  #fingerprint(): string {
    return this.#index.compute("fingerprint", "sagabox.index");
  }
}

function otherIndex(): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_INVALID",
    "The key of blind indexes is not the one that this database was written with, so no data subject would be found. " +
      "Nothing was done. Use the `index` key of the other services.",
  );
}
