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
import { decryptionFailed } from "./cipher.ts";
import { formatEncryptedHeader, parseEncryptedHeader, parseToken } from "./encrypted-format.ts";
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

/** Collects the texts in decrypted values, so that they can be removed from errors about the message. */
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

/** The part of `MessageCipher` that handles replies to commands. */
export type ReplyCipher = Pick<MessageCipher, "encryptReply" | "openReply" | "replyHeaders">;

/** Encrypts and decrypts the personal fields of messages with the keys of their data subjects. */
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
    const paths = findFieldPaths(data, personal.fields);
    if (paths === undefined) throw tooManyFields(contract.name);
    if (paths.length === 0) return { data, headers: noHeaders };
    const subject = this.#index.subject(readSubject(contract, data));
    const key = await this.#keys.getEncryptionKey(subject, tx);
    const cipher = new FieldCipher(key, createBinding(message));
    const encrypted = new Map(paths.map((path) => [path, cipher.encrypt(valueAt(data, path), path)]));
    const header = formatEncryptedHeader({ keyId: key.keyId, fields: personal.fields });
    return { data: replaceAt(data, encrypted), headers: { [encryptedHeader]: header } };
  }

  /**
   * Encrypts the personal fields of a reply with the key of the command's data subject. The reply is bound to the name of
   * the command and not to the request, because a repeated command gets the reply to the first one.
   */
  async encryptReply(
    contract: PersonalContract,
    data: unknown,
    reply: unknown,
    tx: Queryable,
  ): Promise<unknown> {
    const paths = findFieldPaths(reply, contract.personal?.reply ?? []);
    if (paths === undefined) throw tooManyFields(contract.name);
    if (paths.length === 0) return reply;
    const subjectId = readSubjectUnlessErased(contract, data);
    // The subject of the command was erased. A reply without a known subject could not be erased later.
    if (subjectId === undefined) return replaceAt(reply, new Map(paths.map((path) => [path, erased])));
    const key = await this.#keys.getEncryptionKey(this.#index.subject(subjectId), tx);
    const cipher = new FieldCipher(key, { purpose: "reply", id: contract.name });
    return replaceAt(reply, new Map(paths.map((path) => [path, cipher.encrypt(valueAt(reply, path), path)])));
  }

  /** Decrypts the reply to the command `name`. Fields that cannot be decrypted are listed as hidden. */
  async openReply(name: string, reply: Json, tx?: Queryable): Promise<UnpackedPayload> {
    const paths = findEncryptedPaths(reply);
    const [first] = paths;
    const keyId = first === undefined ? undefined : keyIdAt(reply, first);
    if (keyId === undefined) return hideFields(reply, findErasedPaths(reply), "erased");
    return this.#decryptFields(keyId, { purpose: "reply", id: name }, reply, paths, tx);
  }

  /** The headers of an encrypted reply, with the id of its key. */
  readonly replyHeaders = replyHeaders;

  async open(message: ReceivedMessage, data: Json): Promise<UnpackedPayload> {
    const { keyId, paths } = findEncryptedFields(message, data);
    if (paths.length === 0) return { data, hidden: nothing, secrets: nothing };
    return this.#decryptFields(keyId, createBinding(message), data, paths);
  }

  async #decryptFields(
    keyId: string,
    binding: Binding,
    data: Json,
    paths: readonly FieldPath[],
    tx?: Queryable,
  ): Promise<UnpackedPayload> {
    const key = await this.#keys.find(keyId, tx);
    if (key === "unknown") return hideFields(data, paths, "sealed");
    if (key === "erased") return hideFields(data, paths, "erased");
    const cipher = new FieldCipher(key, binding);
    const opened = new Map(paths.map((path) => [path, cipher.decrypt(valueAt(data, path), path)]));
    return {
      data: replaceAt(data, opened) as Json,
      hidden: nothing,
      secrets: findSecrets([...opened.values()]),
    };
  }
}

/** The cipher of a process without keys: encryption throws PRIVACY_KEYS_MISSING, and encrypted fields stay hidden. */
export const withoutKeys = {
  seal: (contract: PersonalContract): Promise<never> => Promise.reject(keysMissing(`"${contract.name}"`)),
  encryptReply: (contract: PersonalContract): Promise<never> =>
    Promise.reject(keysMissing(`the reply to "${contract.name}"`)),
  openReply: (_: string, reply: Json): Promise<UnpackedPayload> =>
    Promise.resolve(hideFields(reply, findEncryptedPaths(reply), "sealed")),
  replyHeaders,
  open: (message: ReceivedMessage, data: Json): Promise<UnpackedPayload> =>
    // Turns an error about the message into a rejection.
    Promise.resolve().then(() => hideFields(data, findEncryptedFields(message, data).paths, "sealed")),
};

function createBinding({ id, type }: IdentifiedMessage): { purpose: string; id: string } {
  return { purpose: "message", id: JSON.stringify([id, type]) };
}

// All listed fields that exist must be encrypted. An unencrypted value in a listed field was added after encryption.
function findEncryptedFields(
  { headers }: ReceivedMessage,
  data: Json,
): { readonly keyId: string; readonly paths: readonly FieldPath[] } {
  const header = parseEncryptedHeader(headers[encryptedHeader] ?? "");
  const paths = header === undefined ? undefined : findFieldPaths(data, header.fields);
  if (header === undefined || paths === undefined) throw decryptionFailed();
  if (!paths.every((path) => isEncrypted(valueAt(data, path)))) throw decryptionFailed();
  return { keyId: header.keyId, paths };
}

function replyHeaders(reply: Json): Headers {
  const [first] = findEncryptedPaths(reply);
  return first === undefined ? noHeaders : { [encryptedReplyHeader]: keyIdAt(reply, first) };
}

function keyIdAt(data: Json, path: FieldPath): string {
  const value = valueAt(data, path);
  const token = isEncrypted(value) ? parseToken(value.$sealed) : undefined;
  if (token === undefined) throw decryptionFailed();
  return token.keyId;
}

function hideFields(data: Json, paths: readonly FieldPath[], as: HiddenField["as"]): UnpackedPayload {
  const hidden = paths.map((path) => ({ path, as }));
  const shown = as === "sealed" ? data : replaceAt(data, new Map(paths.map((path) => [path, erased])));
  return { data: shown as Json, hidden, secrets: nothing };
}

// The error of the user's function may quote personal data, so it is not used as the cause.
function readSubject({ name, personal }: PersonalContract, data: unknown): string {
  let subject: unknown;
  try {
    subject = personal?.subject(data);
  } catch {
    throw new SagaboxError("PRIVACY_SUBJECT_INVALID", `\`personal.subject\` of "${name}" failed.`);
  }
  return checkSubject(subject);
}

/** Returns the subject, or undefined if the field that identifies it is erased. */
function readSubjectUnlessErased(contract: PersonalContract, data: unknown): string | undefined {
  try {
    return readSubject(contract, data);
  } catch (error) {
    const paths = findFieldPaths(data, contract.personal?.fields ?? nothing) ?? nothing;
    if (paths.some((path) => isErased(valueAt(data, path)))) return undefined;
    throw error;
  }
}

/** The error for missing keys. `what` names the data to be encrypted; omit it for other operations. */
export function keysMissing(what?: string): SagaboxError {
  const problem =
    what === undefined
      ? "This process has no key ring, so operations on personal data are not available. A service without encrypted fields needs none."
      : `The personal data of ${what} cannot be encrypted: this process has no key ring.`;
  return new SagaboxError(
    "PRIVACY_KEYS_MISSING",
    `${problem} ` +
      "Set SAGABOX_KEY_RING_FILE or SAGABOX_KEY_RING, or pass `privacy: { keys }` to createBus().",
  );
}

function tooManyFields(name: string): SagaboxError {
  return new SagaboxError(
    "PAYLOAD_TOO_LARGE",
    `"${name}" has more than ${MAX_FIELD_PATHS} personal values in one message.`,
  );
}
