import { SagaboxError } from "../errors/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { BlindIndex } from "./blind-index.ts";
import type { PrivacyStatements } from "./statements.ts";

/** Refuses a key of blind indexes that is not the one of this database: with it, nobody who is there would be found. */
export class IndexGuard {
  readonly #sql: Pick<PrivacyStatements, "fingerprint" | "addFingerprint">;
  readonly #index: BlindIndex;
  #known: string | undefined;

  constructor(sql: Pick<PrivacyStatements, "fingerprint" | "addFingerprint">, index: BlindIndex) {
    this.#sql = sql;
    this.#index = index;
  }

  /** Before persons are looked for. A database that knows no key yet accepts any. */
  async check(database: Queryable): Promise<void> {
    await this.#isNoted(database);
  }

  /** Before a person is written for the first time: from then on, this is the key. */
  async note(tx: Queryable): Promise<void> {
    if (await this.#isNoted(tx)) return;
    // Not remembered: the transaction may still be rolled back.
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
    "The key of blind indexes is not the one that persons in this database were written with: nobody would be found " +
      "with it. Nothing was done. Give the `index` key that the other services have.",
  );
}
