import type { AttachmentSeal } from "../message/index.ts";

type Bytes = AsyncIterable<Uint8Array>;

/** Seals one attachment, as it passes. */
export interface Sealing extends Pick<AttachmentSeal, "keyId" | "salt"> {
  seal(plain: Bytes): Bytes;
}

/** Whoever has the keys of persons: what attachments need of them. */
export interface AttachmentSealer {
  /** With a key of this person. Whether the value names one is judged here. */
  sealingFor(subject: unknown): Promise<Sealing>;
  /**
   * Throws when the person was erased, or there is no key. What comes out of the function was checked piece by piece,
   * before anybody sees it; it throws where the stored bytes are not what was sealed.
   */
  openingOf(seal: AttachmentSeal): Promise<(stored: Bytes) => Bytes>;
}
