import { SagaboxError } from "../errors/index.ts";
import {
  type AnyContract,
  encryptedHeader,
  encryptedReplyHeader,
  erased,
  type Headers,
  type HiddenField,
  isEncrypted,
  isErased,
  type Json,
  type Message,
  type PackedMessage,
  type UnpackedPayload,
} from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";
import { type BlindIndex, checkSubject } from "./blind-index.ts";
import { decryptionFailed } from "./decryption-failed.ts";
import { formatEncryptedHeader, parseEncryptedHeader } from "./encrypted-header.ts";
import { parseToken } from "./encrypted-token.ts";
import { type Binding, FieldCipher } from "./field-cipher.ts";
import {
  type FieldPath,
  findEncryptedPaths,
  findErasedPaths,
  findFieldPaths,
  MAX_FIELD_PATHS,
  replaceAt,
  valueAt,
} from "./field-paths.ts";
import type { SubjectKeys } from "./subject-keys.ts";

const MAX_SECRETS = 1_000;
const MIN_NUMBER_LENGTH = 5;

/** The texts in opened values, for taking them out of what is written about their message. */
function findSecrets(values: readonly unknown[]): readonly string[] {
  const secrets = new Set<string>();
  const left = [...values];
  while (left.length > 0 && secrets.size < MAX_SECRETS) {
    const value = left.pop();
    if (typeof value === "string") secrets.add(value);
    else if (typeof value === "number" && String(value).length >= MIN_NUMBER_LENGTH)
      secrets.add(String(value));
    else if (typeof value === "object" && value !== null) left.push(...Object.values(value as object));
  }
  return [...secrets].sort((a, b) => b.length - a.length);
}

type PersonalContract = Pick<AnyContract, "name" | "kind" | "personal">;
type IdentifiedMessage = Pick<PackedMessage, "id" | "type">;
type ReceivedMessage = Pick<Message, "id" | "type" | "headers">;

const noHeaders: Headers = Object.freeze({});
const nothing: readonly never[] = [];

/** The same for replies to commands. */
export type ReplyCipher = Pick<MessageCipher, "encryptReply" | "openReply" | "replyHeaders">;

/** The personal fields of messages: sealed under the key of their person, opened again or shown as what is hidden. */
export class MessageCipher {
  readonly #keys: SubjectKeys;
  readonly #index: BlindIndex;

  constructor(keys: SubjectKeys, index: BlindIndex) {
    this.#keys = keys;
    this.#index = index;
  }

  async seal(
    contract: PersonalContract,
    message: IdentifiedMessage,
    data: unknown,
    tx: Queryable | undefined,
  ): Promise<{ readonly data: unknown; readonly headers: Headers }> {
    const { personal } = contract;
    if (personal === null) return { data, headers: noHeaders };
    const places = findFieldPaths(data, personal.fields);
    if (places === undefined) throw tooMany(contract.name);
    if (places.length === 0) return { data, headers: noHeaders };
    const subject = this.#index.subject(readSubject(contract, data));
    const key = await this.#keys.forSealing(subject, tx);
    const sealer = new FieldCipher(key, createBinding(message));
    const sealed = new Map(places.map((place) => [place, sealer.encrypt(valueAt(data, place), place)]));
    const header = formatEncryptedHeader({ keyId: key.keyId, fields: personal.fields });
    return { data: replaceAt(data, sealed), headers: { [encryptedHeader]: header } };
  }

  /**
   * The personal fields of a reply, under the key of the person whom its command is about. It is bound to the command's
   * name and not to the request: a command that is repeated is answered with the reply to the first.
   */
  async encryptReply(
    contract: PersonalContract,
    data: unknown,
    reply: unknown,
    tx: Queryable,
  ): Promise<unknown> {
    const places = findFieldPaths(reply, contract.personal?.reply ?? []);
    if (places === undefined) throw tooMany(contract.name);
    if (places.length === 0) return reply;
    const person = readSubjectUnlessErased(contract, data);
    // Nobody knows any more whose answer this is, so nobody could erase it.
    if (person === undefined) return replaceAt(reply, new Map(places.map((place) => [place, erased])));
    const key = await this.#keys.forSealing(this.#index.subject(person), tx);
    const sealer = new FieldCipher(key, { purpose: "reply", id: contract.name });
    return replaceAt(
      reply,
      new Map(places.map((place) => [place, sealer.encrypt(valueAt(reply, place), place)])),
    );
  }

  /** `name`: the command. Whatever is sealed in its reply is opened, or shown as what is hidden. */
  async openReply(name: string, reply: Json, tx?: Queryable): Promise<UnpackedPayload> {
    const places = findEncryptedPaths(reply);
    const [first] = places;
    const keyId = first === undefined ? undefined : keyIdAt(reply, first);
    if (keyId === undefined) return hideFields(reply, findErasedPaths(reply), "erased");
    return this.#decryptFields(keyId, { purpose: "reply", id: name }, reply, places, tx);
  }

  /** Tells whose reply it is, as its own text does. */
  readonly replyHeaders = replyHeaders;

  async open(message: ReceivedMessage, data: Json): Promise<UnpackedPayload> {
    const { keyId, places } = findEncryptedFields(message, data);
    if (places.length === 0) return { data, hidden: nothing, secrets: nothing };
    return this.#decryptFields(keyId, createBinding(message), data, places);
  }

  async #decryptFields(
    keyId: string,
    binding: Binding,
    data: Json,
    places: readonly FieldPath[],
    tx?: Queryable,
  ): Promise<UnpackedPayload> {
    const key = await this.#keys.find(keyId, tx);
    if (key === "unknown") return hideFields(data, places, "sealed");
    if (key === "erased") return hideFields(data, places, "erased");
    const sealer = new FieldCipher(key, binding);
    const opened = new Map(places.map((place) => [place, sealer.decrypt(valueAt(data, place), place)]));
    return {
      data: replaceAt(data, opened) as Json,
      hidden: nothing,
      secrets: findSecrets([...opened.values()]),
    };
  }
}

/** Where there are no keys: nothing can be sealed, and what others sealed stays so. */
export const withoutKeys = {
  seal: (contract: PersonalContract): Promise<never> => Promise.reject(keysMissing(`"${contract.name}"`)),
  encryptReply: (contract: PersonalContract): Promise<never> =>
    Promise.reject(keysMissing(`the reply to "${contract.name}"`)),
  openReply: (_: string, reply: Json): Promise<UnpackedPayload> =>
    Promise.resolve(hideFields(reply, findEncryptedPaths(reply), "sealed")),
  replyHeaders,
  open: (message: ReceivedMessage, data: Json): Promise<UnpackedPayload> =>
    // A promise from the start: whatever is wrong with the message is its failure, not ours.
    Promise.resolve().then(() => hideFields(data, findEncryptedFields(message, data).places, "sealed")),
};

function createBinding({ id, type }: IdentifiedMessage): { purpose: string; id: string } {
  return { purpose: "message", id: JSON.stringify([id, type]) };
}

// Everything that is listed and there must be sealed: a value in clear in such a place was put there by somebody else.
function findEncryptedFields(
  { headers }: ReceivedMessage,
  data: Json,
): { readonly keyId: string; readonly places: readonly FieldPath[] } {
  const sealed = parseEncryptedHeader(headers[encryptedHeader] ?? "");
  const places = sealed === undefined ? undefined : findFieldPaths(data, sealed.fields);
  if (sealed === undefined || places === undefined) throw decryptionFailed();
  if (!places.every((place) => isEncrypted(valueAt(data, place)))) throw decryptionFailed();
  return { keyId: sealed.keyId, places };
}

function replyHeaders(reply: Json): Headers {
  const [first] = findEncryptedPaths(reply);
  return first === undefined ? noHeaders : { [encryptedReplyHeader]: keyIdAt(reply, first) };
}

function keyIdAt(data: Json, place: FieldPath): string {
  const value = valueAt(data, place);
  const token = isEncrypted(value) ? parseToken(value.$sealed) : undefined;
  if (token === undefined) throw decryptionFailed();
  return token.keyId;
}

function hideFields(data: Json, places: readonly FieldPath[], as: HiddenField["as"]): UnpackedPayload {
  const hidden = places.map((path) => ({ path, as }));
  const shown = as === "sealed" ? data : replaceAt(data, new Map(places.map((place) => [place, erased])));
  return { data: shown as Json, hidden, secrets: nothing };
}

// What the user's function throws may quote the data, so its words are not kept.
function readSubject({ name, personal }: PersonalContract, data: unknown): string {
  let subject: unknown;
  try {
    subject = personal?.subject(data);
  } catch {
    throw new SagaboxError("PRIVACY_SUBJECT_INVALID", `\`personal.subject\` of "${name}" failed.`);
  }
  return checkSubject(subject);
}

/** Undefined where the person was named by a field that is erased. */
function readSubjectUnlessErased(contract: PersonalContract, data: unknown): string | undefined {
  try {
    return readSubject(contract, data);
  } catch (error) {
    const places = findFieldPaths(data, contract.personal?.fields ?? nothing) ?? nothing;
    if (places.some((place) => isErased(valueAt(data, place)))) return undefined;
    throw error;
  }
}

/** Without a word of what: nothing was to be sealed, somebody only asked. */
export function keysMissing(what?: string): SagaboxError {
  const problem =
    what === undefined
      ? "There is no key ring here, so nothing can be said or done about personal data; where none are sealed there are none."
      : `Personal data of ${what} cannot be sealed: there is no key ring.`;
  return new SagaboxError(
    "PRIVACY_KEYS_MISSING",
    `${problem} ` +
      "Set SAGABOX_KEY_RING_FILE or SAGABOX_KEY_RING, or pass `privacy: { keys }` to createBus().",
  );
}

function tooMany(name: string): SagaboxError {
  return new SagaboxError(
    "PAYLOAD_TOO_LARGE",
    `"${name}" has more than ${MAX_FIELD_PATHS} personal values in one message.`,
  );
}
