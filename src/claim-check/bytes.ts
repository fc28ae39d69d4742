import { createHash } from "node:crypto";
import { isSagaboxError, PayloadError, SagaboxError, readVerdict } from "../errors/index.ts";
import type { BlobReference } from "../message/index.ts";

/** Bytes in memory, or anything that gives them piece by piece: a Readable, a web stream, a generator. */
export type ByteSource = Uint8Array | AsyncIterable<Uint8Array>;

const CHUNK_BYTES = 262_144;

/** Bytes in memory as pieces that share it. */
export async function* splitBytes(bytes: Uint8Array, size = CHUNK_BYTES): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.byteLength; at += size) yield bytes.subarray(at, at + size);
}

/** The same bytes in pieces of one size, the last one shorter; at least one, though it may be empty. */
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
      room = Buffer.allocUnsafe(size); // whoever got the last one may still be sending it
      filled = 0;
    }
  }
  yield room.subarray(0, filled);
}

/** The pieces of a source; what is no bytes, or too many, is refused. */
export async function* limitBytes(source: ByteSource, maxBytes: number): AsyncGenerator<Uint8Array> {
  let seen = 0;
  for await (const piece of source instanceof Uint8Array ? splitBytes(source) : wrapSourceErrors(source)) {
    if (!(piece instanceof Uint8Array)) throw notBytes();
    seen += piece.byteLength;
    if (seen > maxBytes) throw tooLarge(maxBytes);
    yield piece;
  }
}

// Whoever hears of it must not look for the mistake in the store. An error of ours or a verdict says enough by itself.
async function* wrapSourceErrors(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  try {
    yield* source;
  } catch (error) {
    throw isSagaboxError(error) || readVerdict(error) !== undefined ? error : sourceFailed(error);
  }
}

/** Counts and hashes what passes through to a store. */
export class Meter implements AsyncIterable<Uint8Array> {
  readonly #source: AsyncIterable<Uint8Array>;
  readonly #hash = createHash("sha256");
  #bytes = 0;
  #isBroken = false;

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source;
  }

  /** Whether the source failed, and not the store. */
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

  /** Once everything has passed. */
  finish(): Pick<BlobReference, "bytes" | "sha256"> {
    return { bytes: this.#bytes, sha256: this.#hash.digest("hex") };
  }
}

/** The bytes of a store as they are asked for; at their end it throws if they are not what the reference says. */
export async function* verifyBytes(
  source: AsyncIterable<Uint8Array>,
  { key, bytes, sha256 }: BlobReference,
): AsyncGenerator<Uint8Array> {
  const hash = createHash("sha256");
  let seen = 0;
  for await (const piece of source) {
    seen += piece.byteLength;
    if (seen > bytes) throw corrupt(key, `it has more than the ${bytes} bytes that were put there`);
    hash.update(piece);
    yield piece;
  }
  if (seen !== bytes) throw corrupt(key, `it has ${seen} bytes instead of ${bytes}`);
  if (hash.digest("hex") !== sha256) throw corrupt(key, "its SHA-256 is another one");
}

/** All of them at once, checked before anybody sees any. */
export async function collectBytes(
  source: AsyncIterable<Uint8Array>,
  reference: BlobReference,
): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  for await (const piece of verifyBytes(source, reference)) pieces.push(piece);
  return Buffer.concat(pieces, reference.bytes);
}

export function corrupt(key: string, why: string): SagaboxError<"CLAIM_CORRUPT"> {
  return new SagaboxError("CLAIM_CORRUPT", `What lies under ${key} was changed or cut off: ${why}.`);
}

export function tooLarge(maxBytes: number): PayloadError {
  return new PayloadError(
    "PAYLOAD_TOO_LARGE",
    `There are more than ${maxBytes} bytes. Send less, or raise \`claimCheck.maxBytes\`.`,
  );
}

function sourceFailed(cause: unknown): SagaboxError<"CLAIM_SOURCE_FAILED"> {
  return new SagaboxError(
    "CLAIM_SOURCE_FAILED",
    "What was to be attached could not be read to its end: its source failed, not the store. Nothing was attached.",
    { cause },
  );
}

function notBytes(): SagaboxError {
  return new SagaboxError(
    "OPTIONS_INVALID",
    "bus.attach takes a Uint8Array or a stream of them. Streams of text need no encoding set; other values must be turned into bytes first.",
  );
}
