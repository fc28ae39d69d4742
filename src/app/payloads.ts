import {
  claimHeader,
  decodeJson,
  encodeJson,
  noHeaders,
  sealedHeader,
  sealedReplyIn,
  type AnyContract,
  type Headers,
  type Json,
  type Message,
  type Packed,
  type PackedMessage,
  type SealedReply,
  type Unpack,
  type Unpacked,
} from "../message/index.ts";
import type { Pack } from "../outbox/index.ts";
import type { Queryable } from "../storage/index.ts";

/** The claim check: what is too large for the message lies elsewhere. */
export interface PayloadShelf {
  /** The largest payload that can be sent. */
  readonly maxBytes: number;
  /** `clear`: the same before anything in it was sealed. What it refers to is needed as long as the message is there. */
  deposit(
    text: string,
    message: PackedMessage,
    tx: Queryable | undefined,
    clear?: string,
  ): Packed | Promise<Packed>;
  /** The payload of a message that carries a reference, checked against it. */
  fetch(message: Message): Promise<string>;
}

/** Personal fields: sealed before anything is written, opened for the handler. */
export interface PayloadSeal {
  seal(
    contract: AnyContract,
    message: PackedMessage,
    data: unknown,
    tx: Queryable | undefined,
  ): Promise<{ readonly data: unknown; readonly headers: Headers }>;
  open(message: Message, data: Json): Promise<Unpacked>;
  /** Replies come here sealed already. */
  openReply(command: string, reply: Json, tx?: Queryable): Promise<Unpacked>;
  replyHeaders(reply: Json): Headers;
}

const nothing: readonly never[] = [];

/** From data to what is stored and sent, and back: first sealed, then shelved; fetched, then opened. */
export class Payloads {
  readonly #shelf: PayloadShelf;
  readonly #seal: PayloadSeal;

  constructor(shelf: PayloadShelf, seal: PayloadSeal) {
    this.#shelf = shelf;
    this.#seal = seal;
  }

  readonly pack: Pack = (contract, message, data, tx) => {
    if (contract.personal !== null) return this.#packSealed(contract, message, data, tx);
    const answer = sealedReplyIn(contract.name, data);
    if (answer !== undefined) return this.#packReply(answer, message, tx);
    return this.#shelf.deposit(this.#encode(data), message, tx);
  };

  readonly unpack: Unpack = (_, message) => {
    const isPlain = message.headers[claimHeader] === undefined && message.headers[sealedHeader] === undefined;
    if (!isPlain) return this.#unpackKept(message);
    return { data: decodeJson(message.data, this.#shelf), hidden: nothing, secrets: nothing };
  };

  async #packSealed(
    contract: AnyContract,
    message: PackedMessage,
    data: unknown,
    tx: Queryable | undefined,
  ): Promise<Packed> {
    const sealed = await this.#seal.seal(contract, message, data, tx);
    const text = this.#encode(sealed.data);
    const packed = await this.#shelf.deposit(text, message, tx, this.#encode(data));
    return { data: packed.data, headers: { ...packed.headers, ...sealed.headers } };
  }

  // What lies in its sealed fields is needed as long as the reply is. A reply says whose it is in its own text; where that
  // leaves the message, a header says it.
  async #packReply(answer: SealedReply, message: PackedMessage, tx: Queryable | undefined): Promise<Packed> {
    const opened = await this.#seal.openReply(answer.sealed, answer.reply, tx);
    const clear = this.#encode({ ...answer, reply: opened.data });
    const { data, headers } = await this.#shelf.deposit(this.#encode(answer), message, tx, clear);
    if (headers[claimHeader] === undefined) return { data, headers };
    return { data, headers: { ...headers, ...this.#seal.replyHeaders(answer.reply) } };
  }

  async #unpackKept(message: Message): Promise<Unpacked> {
    const text = message.headers[claimHeader] === undefined ? message.data : await this.#shelf.fetch(message);
    const data = decodeJson(text, this.#shelf);
    if (message.headers[sealedHeader] === undefined) return { data, hidden: nothing, secrets: nothing };
    return this.#seal.open(message, data);
  }

  #encode(data: unknown): string {
    return encodeJson(data, this.#shelf);
  }
}

/** Everything stays in its message. */
export function noShelf(maxBytes: number, refused: () => Error): PayloadShelf {
  return {
    maxBytes,
    deposit: (data) => ({ data, headers: noHeaders }),
    fetch: () => Promise.reject(refused()),
  };
}
