import { ENCRYPTION_TAG_BYTES, ENCRYPTED_CHUNK_BYTES } from "../message/index.ts";
import { decrypt, encrypt, NONCE_BYTES, type Encryption } from "./cipher.ts";
import { decryptionFailed } from "./decryption-failed.ts";

type Bytes = AsyncIterable<Uint8Array>;
/** The key must be that of one stream alone: nonces are counted, and begin anew with each stream. */
export type StreamKey = Pick<Encryption, "key" | "bound">;

/**
 * A stream as sealed chunks (the STREAM construction): the nonce of each holds its number and whether it is the last, so
 * that one that is missing, moved, repeated or added does not open, and neither does a stream that was cut between two.
 */
export async function* encryptChunks(
  stream: StreamKey,
  plain: Bytes,
): AsyncGenerator<Buffer, void, undefined> {
  for await (const { bytes, nonce } of splitChunks(plain, ENCRYPTED_CHUNK_BYTES)) {
    yield encrypt({ ...stream, nonce }, bytes);
  }
}

/** The bytes that were sealed. A chunk is handed out once its tag was checked, and the last one at the end only. */
export async function* decryptChunks(
  stream: StreamKey,
  sealed: Bytes,
): AsyncGenerator<Buffer, void, undefined> {
  for await (const { bytes, nonce } of splitChunks(sealed, ENCRYPTED_CHUNK_BYTES + ENCRYPTION_TAG_BYTES)) {
    const plain = decrypt({ ...stream, nonce }, bytes);
    if (plain === undefined) throw decryptionFailed();
    if (plain.length > 0) yield plain;
  }
}

interface Chunk {
  /** Valid until the next one is asked for. */
  readonly bytes: Buffer;
  readonly nonce: Buffer;
}

// At least one, though it may be empty. A full one waits until more follows, since it may be the last.
async function* splitChunks(source: Bytes, size: number): AsyncGenerator<Chunk, void, undefined> {
  const room = Buffer.alloc(size);
  let filled = 0;
  let number = 0;
  for await (const piece of source) {
    for (let at = 0; at < piece.byteLength;) {
      if (filled === size) {
        yield { bytes: room, nonce: createNonce(number, false) };
        number += 1;
        filled = 0;
      }
      const taken = Math.min(size - filled, piece.byteLength - at);
      room.set(piece.subarray(at, at + taken), filled);
      filled += taken;
      at += taken;
    }
  }
  yield { bytes: room.subarray(0, filled), nonce: createNonce(number, true) };
}

// A number beyond 32 bits throws instead of beginning again at zero; that would be 256 TB.
function createNonce(number: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(NONCE_BYTES);
  nonce.writeUInt32BE(number, NONCE_BYTES - 5);
  nonce.writeUInt8(isLast ? 1 : 0, NONCE_BYTES - 1);
  return nonce;
}
