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

/** Stores payloads that are too large for a message (claim check). */
export interface PayloadStore {
  /** The largest payload that can be sent, in bytes. */
  readonly maxBytes: number;
  /**
   * Returns the payload to put into the message: `text`, or a reference to it. `clear` is the payload before encryption; the
   * store keeps the attachments it refers to as long as the message exists.
   */
  deposit(
    text: string,
    message: PackedMessage,
    tx: Queryable | undefined,
    clear?: string,
  ): PackedPayload | Promise<PackedPayload>;
  /** Fetches the payload that a message refers to. Throws if it does not match the reference. */
  fetch(message: Message): Promise<string>;
}

/** Encrypts personal fields before they are written, and decrypts them for the handler. */
export interface PayloadCipher {
  seal(
    contract: AnyContract,
    message: PackedMessage,
    data: unknown,
    tx: Queryable | undefined,
  ): Promise<{ readonly data: unknown; readonly headers: Headers }>;
  open(message: Message, data: Json): Promise<UnpackedPayload>;
  /** Decrypts a reply. The consumer that made the reply encrypted it. */
  openReply(command: string, reply: Json, tx?: Queryable): Promise<UnpackedPayload>;
  replyHeaders(reply: Json): Headers;
}

const nothing: readonly never[] = [];

/** Converts message data to its stored form and back: encrypts, then stores; fetches, then decrypts. */
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

  // The store must keep attachments in encrypted fields as long as the reply. An encrypted reply names its subject in the
  // payload; if the payload moves to the store, a header names the subject.
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

/** A payload store that keeps every payload in its message. */
export function noPayloadStore(maxBytes: number, refused: () => Error): PayloadStore {
  return {
    maxBytes,
    deposit: (data) => ({ data, headers: noHeaders }),
    fetch: () => Promise.reject(refused()),
  };
}
