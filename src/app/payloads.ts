import {
  claimHeader,
  decodeJson,
  encodeJson,
  noHeaders,
  encryptedHeader,
  findEncryptedReply,
  type AnyContract,
  type Headers,
  type Json,
  type Message,
  type PackedPayload,
  type PackedMessage,
  type EncryptedReply,
  type Unpack,
  type UnpackedPayload,
} from "../message/index.ts";
import type { Pack } from "../outbox/index.ts";
import type { Queryable } from "../storage/index.ts";

/** The claim check: what is too large for the message lies elsewhere. */
export interface PayloadStore {
  /** The largest payload that can be sent. */
  readonly maxBytes: number;
  /** `clear`: the same before anything in it was sealed. What it refers to is needed as long as the message is there. */
  deposit(
    text: string,
    message: PackedMessage,
    tx: Queryable | undefined,
    clear?: string,
  ): PackedPayload | Promise<PackedPayload>;
  /** The payload of a message that carries a reference, checked against it. */
  fetch(message: Message): Promise<string>;
}

/** Personal fields: sealed before anything is written, opened for the handler. */
export interface PayloadCipher {
  seal(
    contract: AnyContract,
    message: PackedMessage,
    data: unknown,
    tx: Queryable | undefined,
  ): Promise<{ readonly data: unknown; readonly headers: Headers }>;
  open(message: Message, data: Json): Promise<UnpackedPayload>;
  /** Replies come here sealed already. */
  openReply(command: string, reply: Json, tx?: Queryable): Promise<UnpackedPayload>;
  replyHeaders(reply: Json): Headers;
}

const nothing: readonly never[] = [];

/** From data to what is stored and sent, and back: first sealed, then shelved; fetched, then opened. */
export class Payloads {
  readonly #store: PayloadStore;
  readonly #cipher: PayloadCipher;

  constructor(shelf: PayloadStore, seal: PayloadCipher) {
    this.#store = shelf;
    this.#cipher = seal;
  }

  readonly pack: Pack = (contract, message, data, tx) => {
    if (contract.personal !== null) return this.#packEncrypted(contract, message, data, tx);
    const answer = findEncryptedReply(contract.name, data);
    if (answer !== undefined) return this.#packReply(answer, message, tx);
    return this.#store.deposit(this.#encode(data), message, tx);
  };

  readonly unpack: Unpack = (_, message) => {
    const isPlain =
      message.headers[claimHeader] === undefined && message.headers[encryptedHeader] === undefined;
    if (!isPlain) return this.#unpackStored(message);
    return { data: decodeJson(message.data, this.#store), hidden: nothing, secrets: nothing };
  };

  async #packEncrypted(
    contract: AnyContract,
    message: PackedMessage,
    data: unknown,
    tx: Queryable | undefined,
  ): Promise<PackedPayload> {
    const sealed = await this.#cipher.seal(contract, message, data, tx);
    const text = this.#encode(sealed.data);
    const packed = await this.#store.deposit(text, message, tx, this.#encode(data));
    return { data: packed.data, headers: { ...packed.headers, ...sealed.headers } };
  }

  // What lies in its sealed fields is needed as long as the reply is. A reply says whose it is in its own text; where that
  // leaves the message, a header says it.
  async #packReply(
    answer: EncryptedReply,
    message: PackedMessage,
    tx: Queryable | undefined,
  ): Promise<PackedPayload> {
    const opened = await this.#cipher.openReply(answer.sealed, answer.reply, tx);
    const clear = this.#encode({ ...answer, reply: opened.data });
    const { data, headers } = await this.#store.deposit(this.#encode(answer), message, tx, clear);
    if (headers[claimHeader] === undefined) return { data, headers };
    return { data, headers: { ...headers, ...this.#cipher.replyHeaders(answer.reply) } };
  }

  async #unpackStored(message: Message): Promise<UnpackedPayload> {
    const text = message.headers[claimHeader] === undefined ? message.data : await this.#store.fetch(message);
    const data = decodeJson(text, this.#store);
    if (message.headers[encryptedHeader] === undefined) return { data, hidden: nothing, secrets: nothing };
    return this.#cipher.open(message, data);
  }

  #encode(data: unknown): string {
    return encodeJson(data, this.#store);
  }
}

/** Everything stays in its message. */
export function noPayloadStore(maxBytes: number, refused: () => Error): PayloadStore {
  return {
    maxBytes,
    deposit: (data) => ({ data, headers: noHeaders }),
    fetch: () => Promise.reject(refused()),
  };
}
