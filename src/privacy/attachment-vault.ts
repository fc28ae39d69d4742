import { SagaboxError } from "../errors/index.ts";
import type { EncryptionInfo } from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import type { Queryable } from "../storage/index.ts";
import { checkSubject } from "./blind-index.ts";
import { decryptChunks, encryptChunks, type StreamKey } from "./chunk-stream.ts";
import { deriveKey } from "./cipher.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { DataKey } from "./key-cache.ts";
import { keysMissing } from "./message-cipher.ts";

type Bytes = AsyncIterable<Uint8Array>;
type EncryptionHeader = Pick<EncryptionInfo, "keyId" | "salt">;

const FORMAT = "1";
const SALT_BYTES = 16;

/** What attachments are sealed and opened with; undefined stands for a process without keys. */
export function attachmentVault(engine: Pick<PrivacyEngine, "keys" | "index"> | undefined) {
  return {
    sealingFor: async (subject: unknown): Promise<EncryptionHeader & { seal(plain: Bytes): Bytes }> => {
      const person = checkSubject(subject);
      if (engine === undefined) throw keysMissing("an attachment");
      const key = await engine.keys.forSealing(engine.index.subject(person));
      const salt = Buffer.from(randomBytes(SALT_BYTES)).toString("base64url");
      const stream = streamKey(key, salt);
      return { keyId: key.keyId, salt, seal: (plain) => encryptChunks(stream, plain) };
    },
    openingOf: async (
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

// A salt for each attachment makes a key for each: counted nonces never meet, and chunks of two cannot be mixed.
function streamKey({ bytes, keyId }: DataKey, salt: string): StreamKey {
  return {
    key: deriveKey(bytes, Buffer.from(salt, "base64url"), `sagabox.attachment.${FORMAT}`),
    bound: JSON.stringify(["sagabox", FORMAT, "attachment", salt, keyId]),
  };
}

function erasedError(): SagaboxError<"PRIVACY_ERASED"> {
  return new SagaboxError(
    "PRIVACY_ERASED",
    "The attachment cannot be opened: the person it is about was erased, and nobody can read it any more.",
  );
}

function encryptedError(): SagaboxError<"PRIVACY_SEALED"> {
  return new SagaboxError(
    "PRIVACY_SEALED",
    "The attachment cannot be opened: this process has no key ring, or its database does not hold the key of the person.",
  );
}
