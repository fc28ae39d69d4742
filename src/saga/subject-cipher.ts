import { SagaboxError } from "../errors/index.ts";
import { isEncrypted, type Encrypted } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";

/** Seals and opens texts under the key of one person. What was sealed as part of one thing opens nowhere else. */
export interface SubjectCipher {
  /** The keyed hash of the person. */
  readonly subject: string;
  encrypt(text: string, of: string, place: FieldPath): Encrypted;
  decrypt(sealed: unknown, of: string, place: FieldPath): string;
}

export type FieldPath = readonly (string | number)[];

/** Why something sealed cannot be had: nobody can read it any more, or this process has no key. */
export type UnreadableReason = "erased" | "sealed";

/** Where the keys of persons are. */
export interface SagaVault {
  forPerson(subject: string, tx: Queryable): Promise<SubjectCipher>;
  find(sealed: Encrypted, tx?: Queryable): Promise<SubjectCipher | UnreadableReason>;
}

/** What stands where a text about a person would be. */
export const ENCRYPTED_TEXT = "[sealed]";

export function encryptText(
  seal: SubjectCipher | undefined,
  text: string | null,
  of: string,
  place: FieldPath,
): string | null {
  return seal === undefined || text === null ? text : JSON.stringify(seal.encrypt(text, of, place));
}

/** The text as it was before it was sealed, if it was. */
export function decryptText(
  seal: SubjectCipher | undefined,
  text: string,
  of: string,
  place: FieldPath,
): string {
  const sealed = seal === undefined ? undefined : parseEncrypted(text);
  return sealed === undefined || seal === undefined ? text : seal.decrypt(sealed, of, place);
}

/** The sealed value in a text that holds nothing else. */
export function parseEncrypted(text: string | null): Encrypted | undefined {
  if (text === null || !text.startsWith('{"$sealed":')) return undefined;
  const value: unknown = JSON.parse(text);
  return isEncrypted(value) ? value : undefined;
}

/** The seal with which a text was sealed; undefined where it was not. */
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

/** Whom data are about. What the user's function throws may quote the data, so its words are not kept. */
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
    `\`personal.subject\` of "${name}" must give a text of 1 to ${MAX_SUBJECT_LENGTH} characters that is not blank.`,
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
