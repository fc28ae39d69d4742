import type { EncryptionInfo } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";

type Bytes = AsyncIterable<Uint8Array>;

/** Encrypts one attachment while it is streamed. */
export interface AttachmentEncryption extends Pick<EncryptionInfo, "keyId" | "salt"> {
  seal(plain: Bytes): Bytes;
}

/** Encrypts and decrypts attachments with the keys of data subjects. */
export interface AttachmentCipher {
  /** Returns an encryption with the subject's key. Throws if `subject` is not a valid subject id. */
  sealingFor(subject: unknown): Promise<AttachmentEncryption>;
  /**
   * Returns a function that decrypts the stored bytes. It authenticates each chunk before it yields it, and throws at
   * the first chunk that was changed. Throws if the subject was erased or has no key. A caller that holds a connection
   * passes it as `within`: loading the key through the pool could deadlock when all connections do so.
   */
  openingOf(seal: EncryptionInfo, within?: Queryable): Promise<(stored: Bytes) => Bytes>;
}
