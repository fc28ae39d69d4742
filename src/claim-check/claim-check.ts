import { Readable } from "node:stream";
import { errorText, isSagaboxError, PayloadError, SagaboxError } from "../errors/index.ts";
import {
  asAttachment,
  type Attachment,
  type BlobReference,
  claimHeader,
  decodeJson,
  decryptedSize,
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
import type { AttachmentCipher } from "./attachment-cipher.ts";
import { type BlobHome, type BlobStore, isLocalStore } from "./blob-store.ts";
import { type ByteSource, collectBytes, corrupt, limitBytes, Meter, tooLarge, verifyBytes } from "./bytes.ts";
import { catchStreamErrors } from "./catch-stream-errors.ts";
import { GuardedStore } from "./guarded-store.ts";
import { type BlobUser, Ledger } from "./ledger.ts";
import type { ClaimCheckSettings } from "./options.ts";
import { Uploads } from "./uploads.ts";

/** Longer than any reference of ours. */
const MAX_BYTES = 1_024;

/** What a message carries in place of its data. */
export function referenceText({ store, key, bytes, sha256 }: BlobReference): string {
  return JSON.stringify({ $claim: { store, key, bytes, sha256 } });
}

/** The reference in what arrived, or an error: it must be one of ours to the letter, whoever sent it. */
export function readReference(text: string, maxBytes: number): BlobReference {
  const claim = parseClaim(text);
  if (!isBlobReference(claim)) throw invalid();
  if (claim.bytes > maxBytes) {
    throw new PayloadError(
      "PAYLOAD_TOO_LARGE",
      `The payload has ${claim.bytes} bytes; at most ${maxBytes} are fetched. Raise \`claimCheck.maxBytes\` to get it.`,
    );
  }
  return claim;
}

function parseClaim(text: string): Json | undefined {
  let value: Json;
  try {
    value = decodeJson(text, { maxBytes: MAX_BYTES, maxDepth: 4 });
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
    "The message says that its payload lies in a store, but its data is no reference to one.",
    { cause },
  );
}

export interface ClaimCheckParts extends BlobHome {
  readonly settings: ClaimCheckSettings;
  /** The most that the transport carries in one message; a broker may tell only once it is connected. */
  readonly carries: () => number;
  /** The largest payload of a message, if the bus has an opinion of its own. */
  readonly maxPayloadBytes: number | undefined;
  readonly observer: Observer;
  /** For attachments about persons. */
  readonly sealer: AttachmentCipher;
}

export interface AttachOptions {
  /** Default "application/octet-stream". */
  readonly contentType?: string;
  /** The person it is about: the bytes are sealed with their key, and nobody can open them once the person is erased. */
  readonly subject?: string;
}

const claimedHeaders = Object.freeze({ [claimHeader]: "1" });
/** Headers, key and names travel with the data. */
const ENVELOPE_BYTES = 8_192;
/** A text has to be in memory as a whole, several times over. */
const MAX_TEXT_BYTES = 64 * 1_048_576;
const neverAborted = new AbortController().signal;

type Doing = "storing" | "fetching";
type As = "payload" | "attachment";

/** Puts what is too large for a message into a store, and gets it back; both ends see no difference. */
export class ClaimCheck {
  /** The largest payload. */
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

  /** By id: the one that this bus writes to, and those that it only reads from. */
  get stores(): ReadonlyMap<string, BlobStore> {
    return this.#stores;
  }

  /** `clear`: the same text before parts of it were sealed, for attachments that only show there. */
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

  /** The payload of a message that carries a reference, checked against it. */
  async fetch({ data }: Pick<Message, "data">): Promise<string> {
    const reference = readReference(data, this.#parts.settings.maxBytes);
    const store = await this.#findStore(reference);
    return this.#measure("fetching", "payload", store.id, async () => {
      const bytes = await collectBytes(await store.get(reference.key, neverAborted), reference);
      return { result: decodeText(bytes, reference), bytes: reference.bytes };
    });
  }

  /** Uploads piece by piece; nothing is needed by anybody until a message with it is published. */
  async attach(source: ByteSource, options: AttachOptions = {}): Promise<Attachment> {
    const heard = catchStreamErrors(source); // before anything else, which may take its time or fail
    rejectUnknownKeys("bus.attach", options, ["contentType", "subject"]);
    const contentType = checkContentType(options.contentType ?? "application/octet-stream");
    const bytes = limitBytes(heard, this.#parts.settings.maxBytes);
    // A subject that turned out to be undefined is a mistake; the bytes of a person must not be stored in clear for it.
    if ("subject" in options) return this.#attachEncrypted(bytes, contentType, options.subject);
    const reference = await this.#putAttachment(new Meter(bytes));
    return { $attachment: { ...reference, contentType } };
  }

  async #attachEncrypted(
    bytes: AsyncIterable<Uint8Array>,
    contentType: string,
    subject: unknown,
  ): Promise<Attachment> {
    const sealing = await this.#parts.sealer.sealingFor(subject);
    const reference = await this.#putAttachment(new Meter(sealing.seal(bytes)));
    const { keyId, salt } = sealing;
    const sealed = { keyId, salt, plainBytes: decryptedSize(reference.bytes) };
    return { $attachment: { ...reference, contentType, sealed } };
  }

  /**
   * The bytes, as they are read. The stream fails at its end if they are not those that were attached; if they are sealed,
   * before the first byte that is not, and before any when there is no key.
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
    const opening = sealed === undefined ? undefined : await sealer.openingOf(sealed, within);
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
    store.settleIn(this.#parts);
    return store;
  }

  // The databases of two services are both called "postgres": which one is meant shows in the key.
  async #findStore({ store: id, key }: BlobReference): Promise<BlobStore> {
    const store = this.#stores.get(id);
    const isElsewhere = store !== undefined && isLocalStore(store) && !(await this.#ledger.isOwn(key));
    if (store !== undefined && !isElsewhere) return store;
    if (isElsewhere) {
      throw new SagaboxError(
        "CLAIM_STORE_UNKNOWN",
        `The payload lies in another database than that of this bus. Let services that share no database use a store that both can reach.`,
      );
    }
    throw new SagaboxError(
      "CLAIM_STORE_UNKNOWN",
      `The payload lies in store "${id}", which this bus was not given. Add it to \`claimCheck.stores\` and replay the message.`,
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
    const told = { store, doing, code, error: errorText(error).slice(0, 500) };
    this.#parts.observer.emit("payload.failed", told);
  }
}

function decodeText(bytes: Buffer, { key }: BlobReference): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw corrupt(key, "it is no text");
  }
}

function checkContentType(given: unknown): string {
  if (isContentType(given)) return given;
  throw new SagaboxError("OPTIONS_INVALID", "bus.attach: contentType must be one like `application/pdf`.");
}

function notAnAttachment(): never {
  throw new SagaboxError(
    "CLAIM_INVALID",
    "open takes an attachment: what bus.attach() returned, as it was received.",
  );
}
