import { SagaboxError } from "../errors/index.ts";
import { isEncrypted, type Encrypted } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";

/** Encrypts texts with the key of one data subject. A text decrypts only with the owner id and path it was encrypted for. */
export interface SubjectCipher {
  /** Keyed hash of the subject's id. */
  readonly subject: string;
  encrypt(text: string, of: string, path: FieldPath): Encrypted;
  decrypt(encrypted: unknown, of: string, path: FieldPath): string;
}

export type FieldPath = readonly (string | number)[];

/** Why encrypted data cannot be read: the subject was erased, or this process has no key (`sealed`). */
export type UnreadableReason = "erased" | "sealed";

/** Finds the ciphers of data subjects. */
export interface SagaVault {
  forPerson(subject: string, tx: Queryable): Promise<SubjectCipher>;
  find(encrypted: Encrypted, tx?: Queryable): Promise<SubjectCipher | UnreadableReason>;
}

/** Replaces texts that may hold personal data in columns and events that are not encrypted. */
export const ENCRYPTED_TEXT = "[sealed]";

export function encryptText(
  seal: SubjectCipher | undefined,
  text: string | null,
  of: string,
  stepPath: FieldPath,
): string | null {
  return seal === undefined || text === null ? text : JSON.stringify(seal.encrypt(text, of, stepPath));
}

/** Decrypts a text. Returns it unchanged if it is not encrypted. */
export function decryptText(
  seal: SubjectCipher | undefined,
  text: string,
  of: string,
  stepPath: FieldPath,
): string {
  const sealed = seal === undefined ? undefined : parseEncrypted(text);
  return sealed === undefined || seal === undefined ? text : seal.decrypt(sealed, of, stepPath);
}

/** Parses a text that is an encrypted value. Undefined if it is not. */
export function parseEncrypted(text: string | null): Encrypted | undefined {
  if (text === null || !text.startsWith('{"$sealed":')) return undefined;
  const value: unknown = JSON.parse(text);
  return isEncrypted(value) ? value : undefined;
}

/** Finds the cipher of an encrypted text. Undefined if the text is not encrypted. */
export async function findCipher(
  vault: SagaVault | undefined,
  text: string | null,
  tx?: Queryable,
): Promise<SubjectCipher | UnreadableReason | undefined> {
  const sealed = parseEncrypted(text);
  if (sealed === undefined) return undefined;
  return vault === undefined ? "sealed" : vault.find(sealed, tx);
}

const MAX_SUBJECT_LENGTH = 1_024;

/** Reads the data subject. Drops the error of the user's function, which may quote the data. Throws PRIVACY_SUBJECT_INVALID. */
export function readSubject(
  name: string,
  personal: { readonly subject: (data: never) => unknown },
  data: unknown,
): string {
  let subject: unknown;
  try {
    subject = personal.subject(data as never);
  } catch {
    throw new SagaboxError("PRIVACY_SUBJECT_INVALID", `\`personal.subject\` of "${name}" failed.`);
  }
  if (typeof subject === "string" && subject.trim() !== "" && subject.length <= MAX_SUBJECT_LENGTH)
    return subject;
  throw new SagaboxError(
    "PRIVACY_SUBJECT_INVALID",
    `\`personal.subject\` of "${name}" must return a string of 1 to ${MAX_SUBJECT_LENGTH} characters that is not blank.`,
  );
}

export function keyUnavailable(id: string): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_UNAVAILABLE",
    `Saga ${id} is about a person, and this process has no key for it. Give it the key ring of the others.`,
  );
}

export function keysMissing(name: string): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_MISSING",
    `Saga "${name}" is about persons and cannot be started: there is no key ring. ` +
      "Set SAGABOX_KEY_RING_FILE or SAGABOX_KEY_RING, or pass `privacy: { keys }` to createBus().",
  );
}
