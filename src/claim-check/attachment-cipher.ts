import type { EncryptionInfo } from "../message/index.ts";
import type { Queryable } from "../storage/index.ts";

type Bytes = AsyncIterable<Uint8Array>;

/** Seals one attachment, as it passes. */
export interface AttachmentEncryption extends Pick<EncryptionInfo, "keyId" | "salt"> {
  seal(plain: Bytes): Bytes;
}

/** Whoever has the keys of persons: what attachments need of them. */
export interface AttachmentCipher {
  /** With a key of this person. Whether the value names one is judged here. */
  sealingFor(subject: unknown): Promise<AttachmentEncryption>;
  /**
   * Throws when the person was erased, or there is no key. What comes out of the function was checked piece by piece,
   * before anybody sees it; it throws where the stored bytes are not what was sealed. Whoever holds a connection gives it,
   * so that the key is not waited for while every other connection waits for one too.
   */
  openingOf(seal: EncryptionInfo, within?: Queryable): Promise<(stored: Bytes) => Bytes>;
}
