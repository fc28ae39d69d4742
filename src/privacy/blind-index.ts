import { createHmac } from "node:crypto";
import { SagaboxError } from "../errors/index.ts";

const LONGEST = 1_024;

/** Names for values that tell nothing without the key, and are the same each time: for finding, never for reading. */
export class BlindIndex {
  readonly #key: () => Uint8Array;

  constructor(key: () => Uint8Array) {
    this.#key = key;
  }

  /** Two purposes give two names for one value, so that what was found for one cannot be matched with the other. */
  of(value: string, purpose: string): string {
    return createHmac("sha256", this.#key())
      .update(JSON.stringify(["sagabox.blind-index", purpose, value]))
      .digest("base64url");
  }

  /** The name of a person in the tables of keys and erasures. */
  subject(subject: unknown): string {
    return this.of(checkedSubject(subject), "sagabox.subject");
  }
}

/** What stands for a person must be a text; which one it was is not repeated. */
export function checkedSubject(subject: unknown): string {
  if (typeof subject === "string" && subject.trim() !== "" && subject.length <= LONGEST) return subject;
  throw new SagaboxError(
    "PRIVACY_SUBJECT_INVALID",
    `A subject must be a text of 1 to ${LONGEST} characters that is not blank. Look at \`personal.subject\` of the contract.`,
  );
}
