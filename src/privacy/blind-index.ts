import { createHmac } from "node:crypto";
import { SagaboxError } from "../errors/index.ts";

const MAX_SUBJECT_LENGTH = 1_024;

/** Names for values that tell nothing without the key, and are the same each time: for finding, never for reading. */
export class BlindIndex {
  readonly #key: () => Uint8Array;

  constructor(key: () => Uint8Array) {
    this.#key = key;
  }

  /** Two purposes give two names for one value, so that what was found for one cannot be matched with the other. */
  compute(value: string, purpose: string): string {
    return createHmac("sha256", this.#key())
      .update(JSON.stringify(["sagabox.blind-index", purpose, value]))
      .digest("base64url");
  }

  /** The name of a person in the tables of keys and erasures. */
  subject(subject: unknown): string {
    return this.compute(checkSubject(subject), "sagabox.subject");
  }
}

/** What stands for a person must be a text; which one it was is not repeated. */
export function checkSubject(subject: unknown): string {
  if (typeof subject === "string" && subject.trim() !== "" && subject.length <= MAX_SUBJECT_LENGTH)
    return subject;
  throw new SagaboxError(
    "PRIVACY_SUBJECT_INVALID",
    `A subject must be a text of 1 to ${MAX_SUBJECT_LENGTH} characters that is not blank. Look at \`personal.subject\` of the contract.`,
  );
}
