import type { Readable } from "node:stream";
import type { BusSettings } from "./bus-options.ts";
import {
  type AttachmentCipher,
  type AttachOptions,
  type ByteSource,
  catchStreamErrors,
  ClaimCheck,
  Collector,
  type CollectReport,
  readClaimCheckSettings,
} from "../claim-check/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { inboxRetentionMs } from "../inbox/index.ts";
import {
  type AnyContract,
  type Attachment,
  claimHeader,
  decodeJson,
  encodeJson,
  encryptedHeader,
  type EncryptedReply,
  findEncryptedReply,
  type Headers,
  type Json,
  type Message,
  noHeaders,
  type PackedMessage,
  type PackedPayload,
  type Unpack,
  type UnpackedPayload,
} from "../message/index.ts";
import type { OutboxSettings, Pack } from "../outbox/index.ts";
import type { Queryable } from "../storage/index.ts";
import { type HomeDatabase, isLocalTransport, type Transport } from "../transport/index.ts";

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

/** Called with the contract of each message that has personal fields. */
type OnPersonal = (contract: AnyContract) => void;

const nothing: readonly never[] = [];

/** Converts message data to its stored form and back: encrypts, then stores; fetches, then decrypts. */
export class Payloads {
  readonly #store: PayloadStore;
  readonly #cipher: PayloadCipher;
  readonly #onPersonal: OnPersonal;

  constructor(shelf: PayloadStore, seal: PayloadCipher, onPersonal: OnPersonal = () => undefined) {
    this.#store = shelf;
    this.#cipher = seal;
    this.#onPersonal = onPersonal;
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
    this.#onPersonal(contract);
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

/** The claim check of a bus: where large payloads and attachments are stored. */
export interface BusClaimCheck {
  readonly shelf: PayloadStore;
  attach(source: ByteSource, options?: AttachOptions): Promise<Attachment>;
  /** `within`: the transaction in which the caller opens the attachment. */
  open(attachment: Attachment, within?: Queryable): Readable;
  /** Deletes stored payloads that no message refers to; undefined without a claim check. */
  readonly collector: Collector | undefined;
}

/** The maintenance operations on stored payloads. */
export interface BusPayloads {
  /** Deletes unreferenced payloads now. A running worker does this every hour. Throws without a claim check. */
  collect(signal?: AbortSignal): Promise<CollectReport>;
}

const INLINE_BYTES = 1_048_576;

/** Reads the claim-check settings; undefined without a claim check. No transport means the PostgreSQL transport. */
export function readClaimCheck(
  {
    claimCheck,
    deadLetterRetentionMs: deadLetterMs,
    inboxRetentionMs: retention,
  }: Pick<BusSettings, "claimCheck" | "deadLetterRetentionMs" | "inboxRetentionMs">,
  { retentionMs: archiveMs }: Pick<OutboxSettings, "retentionMs">,
  transport: Transport | undefined,
): ReturnType<typeof readClaimCheckSettings> {
  const inboxMs = inboxRetentionMs({ retention, deadLetters: deadLetterMs, archive: archiveMs });
  const isHome = transport === undefined || isLocalTransport(transport);
  return readClaimCheckSettings(claimCheck, isHome, { archiveMs, deadLetterMs, inboxMs });
}

export function wireClaimCheck(
  settings: BusSettings,
  outbox: OutboxSettings,
  transport: Transport,
  { database, schema, observer }: HomeDatabase,
  sealer: AttachmentCipher,
): BusClaimCheck {
  const { maxPayloadBytes } = settings;
  const claimCheck = readClaimCheck(settings, outbox, transport);
  if (claimCheck === undefined) return withoutClaimCheck(maxPayloadBytes ?? INLINE_BYTES);
  const home = { database, schema, observer };
  const transportMaxBytes = (): number => transport.capabilities.maxBytes;
  const shelf = new ClaimCheck({
    ...home,
    settings: claimCheck,
    carries: transportMaxBytes,
    maxPayloadBytes,
    sealer,
  });
  const { stores } = shelf;
  const { retentionMs, graceMs } = claimCheck;
  return {
    shelf,
    attach: (source, options) => shelf.attach(source, options),
    open: (attachment, within) => shelf.open(attachment, within),
    collector: new Collector({ ...home, stores, retentionMs, graceMs }),
  };
}

export function busPayloads({ collector }: Pick<BusClaimCheck, "collector">): BusPayloads {
  return {
    collect: (signal) =>
      collector === undefined ? Promise.reject(noClaimCheck()) : collector.collect(signal),
  };
}

function withoutClaimCheck(maxBytes: number): BusClaimCheck {
  return {
    shelf: noPayloadStore(maxBytes, noClaimCheck),
    attach: async (source) => {
      catchStreamErrors(source); // an unhandled stream error would end the process
      throw noClaimCheck();
    },
    open: () => {
      throw noClaimCheck();
    },
    collector: undefined,
  };
}

function noClaimCheck(): SagaboxError<"CLAIM_STORE_UNKNOWN"> {
  return new SagaboxError(
    "CLAIM_STORE_UNKNOWN",
    "This bus has no claim check, so it cannot store or read large payloads and attachments. " +
      "Pass createBus a `claimCheck` with a store that all services can reach.",
  );
}
