import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { errorText, isSagaboxError, PayloadError, SagaboxError } from "../errors/index.ts";
import {
  asAttachment,
  type Attachment,
  type BlobReference,
  claimHeader,
  decodeJson,
  decryptedSize,
  type EncryptionInfo,
  findAttachments,
  isBlobReference,
  isContentType,
  type Json,
  type Message,
  noHeaders,
  type PackedPayload,
} from "../message/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { systemClock } from "../runtime/index.ts";
import type { Queryable } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { type BlobHome, type BlobStore, isLocalStore } from "./blob-store.ts";
import {
  type ByteSource,
  catchStreamErrors,
  collectBytes,
  corrupt,
  limitBytes,
  Meter,
  splitBytes,
  tooLarge,
  verifyBytes,
} from "./bytes.ts";
import { GuardedStore } from "./guarded-store.ts";
import { type BlobUser, Ledger, uploadAbandoned } from "./ledger.ts";
import type { ClaimCheckSettings } from "./options.ts";

type Bytes = AsyncIterable<Uint8Array>;

/** Encrypts one attachment while it is streamed. */
interface AttachmentEncryption extends Pick<EncryptionInfo, "keyId" | "salt"> {
  seal(plain: Bytes): Bytes;
}

/** Encrypts and decrypts attachments with the keys of data subjects. */
export interface AttachmentCipher {
  /** Returns an encryption with the subject's key. Throws if `subject` is not a valid subject id. */
  encryptionFor(subject: unknown): Promise<AttachmentEncryption>;
  /**
   * Returns a function that decrypts the stored bytes. It authenticates each chunk before it yields it, and throws at
   * the first chunk that was changed. Throws if the subject was erased or has no key. A caller that holds a connection
   * passes it as `within`: loading the key through the pool could deadlock when all connections do so.
   */
  decryptionFor(seal: EncryptionInfo, within?: Queryable): Promise<(stored: Bytes) => Bytes>;
}

/** Larger than any valid reference. */
const MAX_REFERENCE_BYTES = 1_024;

/** Formats the reference that a message carries instead of its data. */
export function referenceText({ store, key, bytes, sha256 }: BlobReference): string {
  return JSON.stringify({ $claim: { store, key, bytes, sha256 } });
}

/**
 * Parses the reference in a received message. Throws CLAIM_INVALID unless it has exactly the expected form, and
 * PAYLOAD_TOO_LARGE if it names more than `maxBytes` bytes.
 */
export function readReference(text: string, maxBytes: number): BlobReference {
  const claim = parseClaim(text);
  if (!isBlobReference(claim)) throw invalid();
  if (claim.bytes > maxBytes) {
    throw new PayloadError(
      "PAYLOAD_TOO_LARGE",
      `The payload has ${claim.bytes} bytes; at most ${maxBytes} are fetched. Raise \`claimCheck.maxBytes\` to fetch it.`,
    );
  }
  return claim;
}

function parseClaim(text: string): Json | undefined {
  let value: Json;
  try {
    value = decodeJson(text, { maxBytes: MAX_REFERENCE_BYTES, maxDepth: 4 });
  } catch (error) {
    throw invalid(error);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const { $claim, ...rest } = value as { readonly [key: string]: Json | undefined };
  return Object.keys(rest).length === 0 ? $claim : undefined;
}

function invalid(cause?: unknown): SagaboxError<"CLAIM_INVALID"> {
  return new SagaboxError(
    "CLAIM_INVALID",
    "The headers of the message say that its payload is in a store, but its data is not a valid reference.",
    { cause },
  );
}

export interface ClaimCheckParts extends BlobHome {
  readonly settings: ClaimCheckSettings;
  /** Returns the transport's maximum message size in bytes. A function, because a broker may report it only once connected. */
  readonly carries: () => number;
  /** The maximum payload size in bytes, if the bus sets one. */
  readonly maxPayloadBytes: number | undefined;
  readonly observer: Observer;
  /** Encrypts attachments about data subjects. */
  readonly sealer: AttachmentCipher;
}

export interface AttachOptions {
  /** Default "application/octet-stream". */
  readonly contentType?: string;
  /** The data subject. The bytes are encrypted with the subject's key and become unreadable when the subject is erased. */
  readonly subject?: string;
}

const claimedHeaders = Object.freeze({ [claimHeader]: "1" });
/** Space in a message for headers, key and names. */
const ENVELOPE_BYTES = 8_192;
/** A payload is in memory as a whole, several times over. */
const MAX_TEXT_BYTES = 64 * 1_048_576;
const neverAborted = new AbortController().signal;

type Doing = "storing" | "fetching";
type As = "payload" | "attachment";

/** Moves payloads that are too large for a message to a store and back. Publishers and handlers see no difference. */
export class ClaimCheck {
  /** The maximum payload size in bytes. */
  readonly maxBytes: number;
  readonly #parts: ClaimCheckParts;
  readonly #ledger: Ledger;
  readonly #uploads: Uploads;
  readonly #store: BlobStore;
  readonly #stores: ReadonlyMap<string, BlobStore>;

  constructor(parts: ClaimCheckParts) {
    const { settings, maxPayloadBytes } = parts;
    this.#parts = parts;
    this.#ledger = new Ledger(parts);
    const guarded = [settings.store, ...settings.stores].map((store) => this.#guardStore(store));
    this.#store = guarded[0] ?? settings.store;
    this.#uploads = new Uploads(this.#ledger, this.#store, settings.graceMs);
    this.#stores = new Map(guarded.map((store) => [store.id, store]));
    this.maxBytes = maxPayloadBytes ?? Math.min(settings.maxBytes, MAX_TEXT_BYTES);
  }

  /** The stores by id: the one that this bus writes to, and those that it only reads from. */
  get stores(): ReadonlyMap<string, BlobStore> {
    return this.#stores;
  }

  /**
   * Stores a payload that is too large for a message, and records the attachments that the message uses. `clear` is the
   * text before encryption: attachments in encrypted fields can be found only there.
   */
  deposit(
    text: string,
    message: BlobUser,
    tx: Queryable | undefined,
    clear = text,
  ): PackedPayload | Promise<PackedPayload> {
    const large = this.#isLarge(text);
    const attached = findAttachments(clear).map(({ $attachment: { key } }) => key);
    if (!large && attached.length === 0) return { data: text, headers: noHeaders };
    return this.#deposit(text, message, tx, attached, large);
  }

  /** Fetches the payload of a message that carries a reference, and verifies its length and hash. */
  async fetch({ data }: Pick<Message, "data">): Promise<string> {
    const reference = readReference(data, this.#parts.settings.maxBytes);
    const store = await this.#findStore(reference);
    return this.#measure("fetching", "payload", store.id, async () => {
      const bytes = await collectBytes(await store.get(reference.key, neverAborted), reference);
      return { result: decodeText(bytes, reference), bytes: reference.bytes };
    });
  }

  /** Streams an attachment to the store. The collector may delete it unless a message that uses it is published. */
  async attach(source: ByteSource, options: AttachOptions = {}): Promise<Attachment> {
    const guarded = catchStreamErrors(source); // first, because the steps below may wait or throw
    rejectUnknownKeys("bus.attach", options, ["contentType", "subject"]);
    const contentType = checkContentType(options.contentType ?? "application/octet-stream");
    const bytes = limitBytes(guarded, this.#parts.settings.maxBytes);
    // `subject: undefined` is an error of the caller: personal data must not be stored unencrypted because of it.
    if ("subject" in options) return this.#attachEncrypted(bytes, contentType, options.subject);
    const reference = await this.#putAttachment(new Meter(bytes));
    return { $attachment: { ...reference, contentType } };
  }

  async #attachEncrypted(
    bytes: AsyncIterable<Uint8Array>,
    contentType: string,
    subject: unknown,
  ): Promise<Attachment> {
    const sealing = await this.#parts.sealer.encryptionFor(subject);
    const reference = await this.#putAttachment(new Meter(sealing.seal(bytes)));
    const { keyId, salt } = sealing;
    const sealed = { keyId, salt, plainBytes: decryptedSize(reference.bytes) };
    return { $attachment: { ...reference, contentType, sealed } };
  }

  /**
   * Streams the bytes of an attachment. The stream fails at its end if the bytes were changed. Encrypted bytes are
   * verified chunk by chunk: the stream fails before the first changed chunk, or at once if there is no key.
   */
  open(attachment: Attachment, within?: Queryable): Readable {
    const { $attachment: reference } = asAttachment(attachment) ?? notAnAttachment();
    return Readable.from(this.#readAttachment(reference, within), {
      objectMode: false,
      highWaterMark: 262_144,
    });
  }

  async *#readAttachment(
    reference: Attachment["$attachment"],
    within: Queryable | undefined,
  ): AsyncGenerator<Uint8Array> {
    const { observer, sealer } = this.#parts;
    const { sealed } = reference;
    const store = await this.#findStore(reference);
    const opening = sealed === undefined ? undefined : await sealer.decryptionFor(sealed, within);
    const began = systemClock.monotonicMs();
    try {
      const stored = verifyBytes(await store.get(reference.key, neverAborted), reference);
      yield* opening?.(stored) ?? stored;
    } catch (error) {
      this.#reportFailure("fetching", store.id, error);
      throw error;
    }
    const durationMs = systemClock.monotonicMs() - began;
    observer.emit("payload.fetched", {
      store: store.id,
      as: "attachment",
      bytes: reference.bytes,
      durationMs,
    });
  }

  async #deposit(
    text: string,
    message: BlobUser,
    tx: Queryable | undefined,
    attached: readonly string[],
    large: boolean,
  ): Promise<PackedPayload> {
    if (attached.length > 0) await this.#ledger.recordUse(tx, attached, message);
    if (!large) return { data: text, headers: noHeaders };
    const reference = await this.#putPayload(Buffer.from(text), tx, message);
    return { data: referenceText(reference), headers: claimedHeaders };
  }

  #putPayload(payload: Buffer, tx: Queryable | undefined, message: BlobUser): Promise<BlobReference> {
    if (payload.byteLength > this.maxBytes) throw tooLarge(this.maxBytes);
    return this.#measure("storing", "payload", this.#store.id, async () => {
      const reference = await this.#uploads.putPayload(payload, tx, message);
      return { result: reference, bytes: reference.bytes };
    });
  }

  #putAttachment(meter: Meter): Promise<BlobReference> {
    const put = async (): Promise<{ result: BlobReference; bytes: number }> => {
      const reference = await this.#uploads.putAttachment(meter);
      return { result: reference, bytes: reference.bytes };
    };
    return this.#measure("storing", "attachment", this.#store.id, put, meter);
  }

  #guardStore(store: BlobStore): BlobStore {
    if (!isLocalStore(store)) return new GuardedStore(store, this.#parts.settings);
    store.attach(this.#parts);
    return store;
  }

  // Every service calls its database "postgres". The key says which database is meant.
  async #findStore({ store: id, key }: BlobReference): Promise<BlobStore> {
    const store = this.#stores.get(id);
    const isElsewhere = store !== undefined && isLocalStore(store) && !(await this.#ledger.isOwn(key));
    if (store !== undefined && !isElsewhere) return store;
    if (isElsewhere) {
      throw new SagaboxError(
        "CLAIM_STORE_UNKNOWN",
        `The payload is stored in the database of another bus. Services without a common database need a store that both can reach.`,
      );
    }
    throw new SagaboxError(
      "CLAIM_STORE_UNKNOWN",
      `The payload is in store "${id}", which this bus does not know. Add it to \`claimCheck.stores\` and replay the message.`,
    );
  }

  #isLarge(text: string): boolean {
    const threshold = Math.min(this.#parts.settings.threshold, this.#maxInlineBytes());
    return text.length > threshold || (text.length * 3 > threshold && Buffer.byteLength(text) > threshold);
  }

  #maxInlineBytes(): number {
    const carries = this.#parts.carries();
    return carries - Math.min(ENVELOPE_BYTES, carries / 2);
  }

  async #measure<T>(
    doing: Doing,
    as: As,
    store: string,
    work: () => Promise<{ readonly result: T; readonly bytes: number }>,
    source?: Pick<Meter, "isBroken">,
  ): Promise<T> {
    const began = systemClock.monotonicMs();
    try {
      const { result, bytes } = await work();
      const durationMs = systemClock.monotonicMs() - began;
      const name = doing === "storing" ? "payload.stored" : "payload.fetched";
      this.#parts.observer.emit(name, { store, as, bytes, durationMs });
      return result;
    } catch (error) {
      if (source?.isBroken !== true) this.#reportFailure(doing, store, error);
      throw error;
    }
  }

  #reportFailure(doing: Doing, store: string, error: unknown): void {
    const code = isSagaboxError(error) ? error.code : "UNKNOWN";
    const failure = { store, doing, code, error: errorText(error).slice(0, 500) };
    this.#parts.observer.emit("payload.failed", failure);
  }
}

function decodeText(bytes: Buffer, { key }: BlobReference): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw corrupt(key, "it is not valid UTF-8");
  }
}

function checkContentType(value: unknown): string {
  if (isContentType(value)) return value;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    "bus.attach: contentType must be a media type such as `application/pdf`.",
  );
}

function notAnAttachment(): never {
  throw new SagaboxError(
    "CLAIM_INVALID",
    "open() takes an attachment: the value that bus.attach() returned, unchanged.",
  );
}

/**
 * Stores bytes under new keys. The row of a key is written before its first byte, so the collector never sees an object
 * without a row that an open transaction or an upload in progress still needs.
 */
export class Uploads {
  readonly #ledger: Ledger;
  readonly #store: BlobStore;
  readonly #touchEveryMs: number;

  constructor(ledger: Ledger, store: BlobStore, graceMs: number) {
    this.#ledger = ledger;
    this.#store = store;
    this.#touchEveryMs = graceMs / 4;
  }

  /** Stores the payload of a message. A rollback of `tx` leaves an object without a row, which the collector deletes. */
  async putPayload(payload: Buffer, tx: Queryable | undefined, message: BlobUser): Promise<BlobReference> {
    const store = this.#store;
    const key = await this.#ledger.newKey(tx);
    const sha256 = createHash("sha256").update(payload).digest("hex");
    const reference = { store: store.id, key, bytes: payload.byteLength, sha256 };
    await this.#ledger.recordBlob(tx, reference, message);
    try {
      if (tx !== undefined && isLocalStore(store)) await store.putIn(tx, key, splitBytes(payload));
      else await store.put(key, splitBytes(payload), neverAborted);
      return reference;
    } catch (error) {
      if (tx === undefined) await this.#discard(key);
      throw error;
    }
  }

  /** Stores bytes that no message uses yet. May take longer than the grace period as long as bytes keep arriving. */
  async putAttachment(meter: Meter): Promise<BlobReference> {
    const store = this.#store;
    const key = await this.#ledger.newKey();
    await this.#ledger.reserve(key, store.id);
    try {
      await store.put(key, this.#touchWhileReading(key, meter), neverAborted);
      const reference = { store: store.id, key, ...meter.finish() };
      await this.#ledger.complete(reference);
      return reference;
    } catch (error) {
      const isAbandoned = !(await this.#discard(key));
      throw isAbandoned && !meter.isBroken ? uploadAbandoned() : error;
    }
  }

  async *#touchWhileReading(key: string, bytes: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    let touchedMs = systemClock.monotonicMs();
    for await (const piece of bytes) {
      if (systemClock.monotonicMs() - touchedMs >= this.#touchEveryMs) {
        await this.#ledger.touch(key);
        touchedMs = systemClock.monotonicMs();
      }
      yield piece;
    }
  }

  // Leaves what it cannot delete to the collector. Returns false only if the collector has already deleted the row.
  async #discard(key: string): Promise<boolean> {
    await this.#store.delete([key], neverAborted).catch(() => undefined);
    return this.#ledger.discard(key).catch(() => true);
  }
}
