import { SagaboxError } from "../errors/index.ts";
import {
  erased,
  isErased,
  isSealed,
  sealedHeader,
  sealedReplyHeader,
  type AnyContract,
  type Headers,
  type Hidden,
  type Json,
  type Message,
  type PackedMessage,
  type Unpacked,
} from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";
import { checkedSubject, type BlindIndex } from "./blind-index.ts";
import { erasedIn, MOST_PLACES, placesOf, replaceAt, sealedIn, valueAt, type Place } from "./places.ts";
import { sealBroken } from "./seal-broken.ts";
import { formatSealedHeader, parseSealedHeader } from "./sealed-header.ts";
import { parseToken } from "./sealed-token.ts";
import { Sealer, type Binding } from "./sealer.ts";
import { secretsIn } from "./secrets.ts";
import type { SubjectKeys } from "./subject-keys.ts";

type PersonalContract = Pick<AnyContract, "name" | "kind" | "personal">;
type Named = Pick<PackedMessage, "id" | "type">;
type Arrived = Pick<Message, "id" | "type" | "headers">;

const none: Headers = Object.freeze({});
const nothing: readonly never[] = [];

/** The same for replies to commands. */
export type ReplySeal = Pick<MessageSeal, "sealReply" | "openReply" | "replyHeaders">;

/** The personal fields of messages: sealed under the key of their person, opened again or shown as what is hidden. */
export class MessageSeal {
  readonly #keys: SubjectKeys;
  readonly #index: BlindIndex;

  constructor(keys: SubjectKeys, index: BlindIndex) {
    this.#keys = keys;
    this.#index = index;
  }

  async seal(
    contract: PersonalContract,
    message: Named,
    data: unknown,
    tx: Queryable | undefined,
  ): Promise<{ readonly data: unknown; readonly headers: Headers }> {
    const { personal } = contract;
    if (personal === null) return { data, headers: none };
    const places = placesOf(data, personal.fields);
    if (places === undefined) throw tooMany(contract.name);
    if (places.length === 0) return { data, headers: none };
    const subject = this.#index.subject(subjectOf(contract, data));
    const key = await this.#keys.forSealing(subject, tx);
    const sealer = new Sealer(key, bindingOf(message));
    const sealed = new Map(places.map((place) => [place, sealer.seal(valueAt(data, place), place)]));
    const header = formatSealedHeader({ keyId: key.keyId, fields: personal.fields });
    return { data: replaceAt(data, sealed), headers: { [sealedHeader]: header } };
  }

  /**
   * The personal fields of a reply, under the key of the person whom its command is about. It is bound to the command's
   * name and not to the request: a command that is repeated is answered with the reply to the first.
   */
  async sealReply(
    contract: PersonalContract,
    data: unknown,
    reply: unknown,
    tx: Queryable,
  ): Promise<unknown> {
    const places = placesOf(reply, contract.personal?.reply ?? []);
    if (places === undefined) throw tooMany(contract.name);
    if (places.length === 0) return reply;
    const person = subjectUnlessErased(contract, data);
    // Nobody knows any more whose answer this is, so nobody could erase it.
    if (person === undefined) return replaceAt(reply, new Map(places.map((place) => [place, erased])));
    const key = await this.#keys.forSealing(this.#index.subject(person), tx);
    const sealer = new Sealer(key, { purpose: "reply", id: contract.name });
    return replaceAt(
      reply,
      new Map(places.map((place) => [place, sealer.seal(valueAt(reply, place), place)])),
    );
  }

  /** `name`: the command. Whatever is sealed in its reply is opened, or shown as what is hidden. */
  async openReply(name: string, reply: Json, tx?: Queryable): Promise<Unpacked> {
    const places = sealedIn(reply);
    const [first] = places;
    const keyId = first === undefined ? undefined : keyIdAt(reply, first);
    if (keyId === undefined) return withHidden(reply, erasedIn(reply), "erased");
    return this.#opened(keyId, { purpose: "reply", id: name }, reply, places, tx);
  }

  /** Tells whose reply it is, as its own text does. */
  readonly replyHeaders = replyHeaders;

  async open(message: Arrived, data: Json): Promise<Unpacked> {
    const { keyId, places } = sealedPlaces(message, data);
    if (places.length === 0) return { data, hidden: nothing, secrets: nothing };
    return this.#opened(keyId, bindingOf(message), data, places);
  }

  async #opened(
    keyId: string,
    binding: Binding,
    data: Json,
    places: readonly Place[],
    tx?: Queryable,
  ): Promise<Unpacked> {
    const key = await this.#keys.find(keyId, tx);
    if (key === "unknown") return withHidden(data, places, "sealed");
    if (key === "erased") return withHidden(data, places, "erased");
    const sealer = new Sealer(key, binding);
    const opened = new Map(places.map((place) => [place, sealer.open(valueAt(data, place), place)]));
    return {
      data: replaceAt(data, opened) as Json,
      hidden: nothing,
      secrets: secretsIn([...opened.values()]),
    };
  }
}

/** Where there are no keys: nothing can be sealed, and what others sealed stays so. */
export const withoutKeys = {
  seal: (contract: PersonalContract): Promise<never> => Promise.reject(keysMissing(`"${contract.name}"`)),
  sealReply: (contract: PersonalContract): Promise<never> =>
    Promise.reject(keysMissing(`the reply to "${contract.name}"`)),
  openReply: (_: string, reply: Json): Promise<Unpacked> =>
    Promise.resolve(withHidden(reply, sealedIn(reply), "sealed")),
  replyHeaders,
  open: (message: Arrived, data: Json): Promise<Unpacked> =>
    // A promise from the start: whatever is wrong with the message is its failure, not ours.
    Promise.resolve().then(() => withHidden(data, sealedPlaces(message, data).places, "sealed")),
};

function bindingOf({ id, type }: Named): { purpose: string; id: string } {
  return { purpose: "message", id: JSON.stringify([id, type]) };
}

// Everything that is listed and there must be sealed: a value in clear in such a place was put there by somebody else.
function sealedPlaces(
  { headers }: Arrived,
  data: Json,
): { readonly keyId: string; readonly places: readonly Place[] } {
  const sealed = parseSealedHeader(headers[sealedHeader] ?? "");
  const places = sealed === undefined ? undefined : placesOf(data, sealed.fields);
  if (sealed === undefined || places === undefined) throw sealBroken();
  if (!places.every((place) => isSealed(valueAt(data, place)))) throw sealBroken();
  return { keyId: sealed.keyId, places };
}

function replyHeaders(reply: Json): Headers {
  const [first] = sealedIn(reply);
  return first === undefined ? none : { [sealedReplyHeader]: keyIdAt(reply, first) };
}

function keyIdAt(data: Json, place: Place): string {
  const value = valueAt(data, place);
  const token = isSealed(value) ? parseToken(value.$sealed) : undefined;
  if (token === undefined) throw sealBroken();
  return token.keyId;
}

function withHidden(data: Json, places: readonly Place[], as: Hidden["as"]): Unpacked {
  const hidden = places.map((path) => ({ path, as }));
  const shown = as === "sealed" ? data : replaceAt(data, new Map(places.map((place) => [place, erased])));
  return { data: shown as Json, hidden, secrets: nothing };
}

// What the user's function throws may quote the data, so its words are not kept.
function subjectOf({ name, personal }: PersonalContract, data: unknown): string {
  let subject: unknown;
  try {
    subject = personal?.subject(data);
  } catch {
    throw new SagaboxError("PRIVACY_SUBJECT_INVALID", `\`personal.subject\` of "${name}" failed.`);
  }
  return checkedSubject(subject);
}

/** Undefined where the person was named by a field that is erased. */
function subjectUnlessErased(contract: PersonalContract, data: unknown): string | undefined {
  try {
    return subjectOf(contract, data);
  } catch (error) {
    const places = placesOf(data, contract.personal?.fields ?? nothing) ?? nothing;
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
    `"${name}" has more than ${MOST_PLACES} personal values in one message.`,
  );
}
