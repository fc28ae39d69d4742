import { SagaboxError } from "../errors/index.ts";
import {
  type Encrypted,
  ENCRYPTED_CHUNK_BYTES,
  ENCRYPTION_TAG_BYTES,
  type EncryptionInfo,
} from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import type { Queryable } from "../storage/index.ts";
import { checkSubject } from "./blind-index.ts";
import { decrypt, decryptionFailed, deriveKey, encrypt, type Encryption, NONCE_BYTES } from "./cipher.ts";
import { parseToken } from "./encrypted-format.ts";
import type { PrivacyEngine } from "./engine.ts";
import { FieldCipher } from "./field-cipher.ts";
import type { DataKey } from "./key-cache.ts";
import { keysMissing } from "./message-cipher.ts";

type FieldPath = readonly (string | number)[];

/** Encrypts and decrypts texts with the key of one data subject. */
interface TextCipher {
  readonly subject: string;
  encrypt(text: string, of: string, stepPath: FieldPath): Encrypted;
  decrypt(sealed: unknown, of: string, stepPath: FieldPath): string;
}

/** Creates the ciphers that encrypt the state of sagas. */
export function createSagaVault({ keys, index }: PrivacyEngine) {
  return {
    forPerson: async (subject: string, tx: Queryable): Promise<TextCipher> =>
      createTextCipher(await keys.getEncryptionKey(index.subject(subject), tx)),
    find: async ({ $sealed }: Encrypted, tx?: Queryable): Promise<TextCipher | "erased" | "sealed"> => {
      const keyId = parseToken($sealed)?.keyId;
      if (keyId === undefined) throw decryptionFailed();
      const key = await keys.find(keyId, tx);
      return key === "unknown" ? "sealed" : key === "erased" ? "erased" : createTextCipher(key);
    },
  };
}

function createTextCipher(key: DataKey): TextCipher {
  const cipherFor = (of: string): FieldCipher => new FieldCipher(key, { purpose: "saga", id: of });
  return {
    subject: key.subject,
    encrypt: (text, of, stepPath) => cipherFor(of).encryptText(text, stepPath),
    decrypt: (sealed, of, stepPath) => cipherFor(of).decryptText(sealed, stepPath),
  };
}

type Bytes = AsyncIterable<Uint8Array>;
type EncryptionHeader = Pick<EncryptionInfo, "keyId" | "salt">;

const FORMAT = "1";
const SALT_BYTES = 16;

/** Creates the ciphers for attachments. `engine` is undefined in a process without keys. */
export function attachmentVault(engine: Pick<PrivacyEngine, "keys" | "index"> | undefined) {
  return {
    encryptionFor: async (subject: unknown): Promise<EncryptionHeader & { seal(plain: Bytes): Bytes }> => {
      const person = checkSubject(subject);
      if (engine === undefined) throw keysMissing("an attachment");
      const key = await engine.keys.getEncryptionKey(engine.index.subject(person));
      const salt = Buffer.from(randomBytes(SALT_BYTES)).toString("base64url");
      const stream = streamKey(key, salt);
      return { keyId: key.keyId, salt, seal: (plain) => encryptChunks(stream, plain) };
    },
    decryptionFor: async (
      { keyId, salt }: EncryptionHeader,
      within?: Queryable,
    ): Promise<(stored: Bytes) => Bytes> => {
      const key = (await engine?.keys.find(keyId, within)) ?? "unknown";
      if (key === "erased") throw erasedError();
      if (key === "unknown") throw encryptedError();
      const stream = streamKey(key, salt);
      return (stored) => decryptChunks(stream, stored);
    },
  };
}

// Each attachment has a salt and therefore a key of its own, so that nonces do not repeat and chunks cannot be exchanged.
function streamKey({ bytes, keyId }: DataKey, salt: string): StreamKey {
  return {
    key: deriveKey(bytes, Buffer.from(salt, "base64url"), `sagabox.attachment.${FORMAT}`),
    bound: JSON.stringify(["sagabox", FORMAT, "attachment", salt, keyId]),
  };
}

function erasedError(): SagaboxError<"PRIVACY_ERASED"> {
  return new SagaboxError(
    "PRIVACY_ERASED",
    "The attachment cannot be decrypted, because its data subject was erased.",
  );
}

function encryptedError(): SagaboxError<"PRIVACY_SEALED"> {
  return new SagaboxError(
    "PRIVACY_SEALED",
    "The attachment cannot be decrypted: this process has no key ring, or its database does not contain the subject's key.",
  );
}

/** A key that is used for one stream only, because its nonces are a counter that begins at zero for each stream. */
export type StreamKey = Pick<Encryption, "key" | "bound">;

/**
 * Encrypts a stream in chunks (the STREAM construction). The nonce of a chunk contains its number and whether it is the
 * last. Decryption therefore fails for missing, moved, repeated or added chunks, and for a truncated stream.
 */
export async function* encryptChunks(
  stream: StreamKey,
  plain: Bytes,
): AsyncGenerator<Buffer, void, undefined> {
  for await (const { bytes, nonce } of splitChunks(plain, ENCRYPTED_CHUNK_BYTES)) {
    yield encrypt({ ...stream, nonce }, bytes);
  }
}

/** Decrypts a stream of chunks. Each chunk is yielded after its tag was verified. Throws PRIVACY_SEAL_BROKEN. */
export async function* decryptChunks(
  stream: StreamKey,
  encrypted: Bytes,
): AsyncGenerator<Buffer, void, undefined> {
  for await (const { bytes, nonce } of splitChunks(encrypted, ENCRYPTED_CHUNK_BYTES + ENCRYPTION_TAG_BYTES)) {
    const plain = decrypt({ ...stream, nonce }, bytes);
    if (plain === undefined) throw decryptionFailed();
    if (plain.length > 0) yield plain;
  }
}

interface Chunk {
  /** A shared buffer, valid until the next chunk is read. */
  readonly bytes: Buffer;
  readonly nonce: Buffer;
}

// Yields at least one chunk, which may be empty. A full chunk is yielded only when more bytes follow, because the last
// chunk has another nonce.
async function* splitChunks(source: Bytes, size: number): AsyncGenerator<Chunk, void, undefined> {
  const buffer = Buffer.alloc(size);
  let filled = 0;
  let number = 0;
  for await (const piece of source) {
    for (let at = 0; at < piece.byteLength;) {
      if (filled === size) {
        yield { bytes: buffer, nonce: createNonce(number, false) };
        number += 1;
        filled = 0;
      }
      const taken = Math.min(size - filled, piece.byteLength - at);
      buffer.set(piece.subarray(at, at + taken), filled);
      filled += taken;
      at += taken;
    }
  }
  yield { bytes: buffer.subarray(0, filled), nonce: createNonce(number, true) };
}

// A number beyond 32 bits, which is after 256 TB, throws instead of starting at zero again.
function createNonce(number: number, isLast: boolean): Buffer {
  const nonce = Buffer.alloc(NONCE_BYTES);
  nonce.writeUInt32BE(number, NONCE_BYTES - 5);
  nonce.writeUInt8(isLast ? 1 : 0, NONCE_BYTES - 1);
  return nonce;
}
