import { SagaboxError } from "../errors/index.ts";
import { isSealed, type Sealed } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";

/** Seals and opens texts under the key of one person. What was sealed as part of one thing opens nowhere else. */
export interface PersonSeal {
  /** The keyed hash of the person. */
  readonly subject: string;
  seal(text: string, of: string, place: SealedPlace): Sealed;
  open(sealed: unknown, of: string, place: SealedPlace): string;
}

export type SealedPlace = readonly (string | number)[];

/** Why something sealed cannot be had: nobody can read it any more, or this process has no key. */
export type HiddenAs = "erased" | "sealed";

/** Where the keys of persons are. */
export interface SagaVault {
  forPerson(subject: string, tx: Queryable): Promise<PersonSeal>;
  find(sealed: Sealed, tx?: Queryable): Promise<PersonSeal | HiddenAs>;
}

/** What stands where a text about a person would be. */
export const SEALED_TEXT = "[sealed]";

export function sealedText(
  seal: PersonSeal | undefined,
  text: string | null,
  of: string,
  place: SealedPlace,
): string | null {
  return seal === undefined || text === null ? text : JSON.stringify(seal.seal(text, of, place));
}

/** The text as it was before it was sealed, if it was. */
export function openedText(
  seal: PersonSeal | undefined,
  text: string,
  of: string,
  place: SealedPlace,
): string {
  const sealed = seal === undefined ? undefined : sealedIn(text);
  return sealed === undefined || seal === undefined ? text : seal.open(sealed, of, place);
}

/** The sealed value in a text that holds nothing else. */
export function sealedIn(text: string | null): Sealed | undefined {
  if (text === null || !text.startsWith('{"$sealed":')) return undefined;
  const value: unknown = JSON.parse(text);
  return isSealed(value) ? value : undefined;
}

/** The seal with which a text was sealed; undefined where it was not. */
export async function sealOf(
  vault: SagaVault | undefined,
  text: string | null,
  tx?: Queryable,
): Promise<PersonSeal | HiddenAs | undefined> {
  const sealed = sealedIn(text);
  if (sealed === undefined) return undefined;
  return vault === undefined ? "sealed" : vault.find(sealed, tx);
}

const LONGEST_SUBJECT = 1_024;

/** Whom data are about. What the user's function throws may quote the data, so its words are not kept. */
export function subjectOf(
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
  if (typeof subject === "string" && subject.trim() !== "" && subject.length <= LONGEST_SUBJECT)
    return subject;
  throw new SagaboxError(
    "PRIVACY_SUBJECT_INVALID",
    `\`personal.subject\` of "${name}" must give a text of 1 to ${LONGEST_SUBJECT} characters that is not blank.`,
  );
}

export function noKeyHere(id: string): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_UNAVAILABLE",
    `Saga ${id} is about a person, and this process has no key for it. Give it the key ring of the others.`,
  );
}

export function noVault(name: string): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_MISSING",
    `Saga "${name}" is about persons and cannot be started: there is no key ring. ` +
      "Set SAGABOX_KEY_RING_FILE or SAGABOX_KEY_RING, or pass `privacy: { keys }` to createBus().",
  );
}
