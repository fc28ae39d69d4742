import { createHash } from "node:crypto";
import { EventEmitter } from "node:events";
import { isSagaboxError, PayloadError, readVerdict, SagaboxError } from "../errors/index.ts";
import type { BlobReference } from "../message/index.ts";

/** Bytes in memory, or an async iterable of them: a Readable, a web stream, a generator. */
export type ByteSource = Uint8Array | AsyncIterable<Uint8Array>;

const CHUNK_BYTES = 262_144;

/** Splits bytes into chunks that share their memory. */
export async function* splitBytes(bytes: Uint8Array, size = CHUNK_BYTES): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += size) yield bytes.subarray(at, at + size);
}

/** Regroups bytes into chunks of `size` bytes; the last may be shorter. Yields at least one chunk, which may be empty. */
export async function* resizeChunks(
  source: AsyncIterable<Uint8Array>,
  size: number,
): AsyncGenerator<Buffer, void, undefined> {
  let room = Buffer.allocUnsafe(size);
  let filled = 0;
  for await (const piece of source) {
    for (let at = 0; at < piece.byteLength;) {
      const taken = Math.min(size - filled, piece.byteLength - at);
      room.set(piece.subarray(at, at + taken), filled);
      filled += taken;
      at += taken;
      if (filled < size || at === piece.byteLength) continue;
      yield room;
      room = Buffer.allocUnsafe(size); // the consumer may still be sending the previous chunk
      filled = 0;
    }
  }
  yield room.subarray(0, filled);
}

/** Yields the chunks of a source. Throws on chunks that are not bytes, and on more than `maxBytes` bytes. */
export async function* limitBytes(source: ByteSource, maxBytes: number): AsyncGenerator<Uint8Array> {
  let seen = 0;
  for await (const piece of source instanceof Uint8Array ? splitBytes(source) : wrapSourceErrors(source)) {
    if (!(piece instanceof Uint8Array)) throw notBytes();
    seen += piece.byteLength;
    if (seen > maxBytes) throw tooLarge(maxBytes);
    yield piece;
  }
}

// Marks the failure as one of the source, not of the store. A SagaboxError or a verdict is clear enough unwrapped.
async function* wrapSourceErrors(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* source;
  } catch (error) {
    throw isSagaboxError(error) || readVerdict(error) !== undefined ? error : sourceFailed(error);
  }
}

/** Counts and hashes the bytes that are streamed to a store. */
export class Meter implements AsyncIterable<Uint8Array> {
  readonly #source: AsyncIterable<Uint8Array>;
  readonly #hash = createHash("sha256");
  #bytes = 0;
  #isBroken = false;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source;
  }

  /** True if the source failed, rather than the store. */
  get isBroken(): boolean {
    return this.#isBroken;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      for await (const piece of this.#source) {
        this.#bytes += piece.byteLength;
        this.#hash.update(piece);
        yield piece;
      }
    } catch (error) {
      this.#isBroken = true;
      throw error;
    }
  }

  /** Returns length and hash. Call it after the stream has ended. */
  finish(): Pick<BlobReference, "bytes" | "sha256"> {
    return { bytes: this.#bytes, sha256: this.#hash.digest("hex") };
  }
}

/** Streams the bytes of a store. Throws CLAIM_CORRUPT if their length or hash differs from the reference. */
export async function* verifyBytes(
  source: AsyncIterable<Uint8Array>,
  { key, bytes, sha256 }: BlobReference,
): AsyncGenerator<Uint8Array> {
  const hash = createHash("sha256");
  let seen = 0;
  for await (const piece of source) {
    seen += piece.byteLength;
    if (seen > bytes) throw corrupt(key, `it has more than the ${bytes} bytes that were stored`);
    hash.update(piece);
    yield piece;
  }
  if (seen !== bytes) throw corrupt(key, `it has ${seen} bytes instead of ${bytes}`);
  if (hash.digest("hex") !== sha256) throw corrupt(key, "its SHA-256 does not match");
}

/** Reads all bytes and verifies them before it returns any. */
export async function collectBytes(
  source: AsyncIterable<Uint8Array>,
  reference: BlobReference,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of verifyBytes(source, reference)) pieces.push(piece);
  return Buffer.concat(pieces, reference.bytes);
}

export function corrupt(key: string, why: string): SagaboxError<"CLAIM_CORRUPT"> {
  return new SagaboxError("CLAIM_CORRUPT", `The stored object ${key} was changed or truncated: ${why}.`);
}

export function tooLarge(maxBytes: number): PayloadError {
  return new PayloadError(
    "PAYLOAD_TOO_LARGE",
    `The payload has more than ${maxBytes} bytes. Send less, or raise \`claimCheck.maxBytes\`.`,
  );
}

function sourceFailed(cause: unknown): SagaboxError<"CLAIM_SOURCE_FAILED"> {
  return new SagaboxError(
    "CLAIM_SOURCE_FAILED",
    "The source of the attachment failed while it was read. The store did not fail, and nothing was attached.",
    { cause },
  );
}

function notBytes(): SagaboxError {
  return new SagaboxError(
    "OPTIONS_INVALID",
    "bus.attach takes a Uint8Array or a stream of them. Streams of text need no encoding set; other values must be turned into bytes first.",
  );
}

/**
 * Adds an error listener to a Node stream at once and throws a recorded error when the stream is read. Node ends the
 * process when a stream without a listener fails, and reading begins only after calls to the database and the store.
 */
export function catchStreamErrors(source: ByteSource): ByteSource {
  if (source instanceof Uint8Array || !(source instanceof EventEmitter)) return source;
  let failure: { readonly error: unknown } | undefined;
  const onError = (error: unknown): void => void (failure ??= { error });
  source.on("error", onError);
  source.once("close", () => source.off("error", onError)); // a closed stream emits no more errors
  return {
    async *[Symbol.asyncIterator]() {
      if (failure !== undefined) throw failure.error;
      yield* source as AsyncIterable<Uint8Array>;
    },
  };
}
