import { NONCE_BYTES } from "./cipher.ts";

/** What `$sealed` holds: which key, and the encrypted bytes. */
export interface EncryptedToken {
  readonly keyId: string;
  readonly nonce: Uint8Array;
  readonly bytes: Uint8Array;
}

/** Names the algorithms and what is bound to the text; a reader refuses what it does not know. */
export const FORMAT = "1";
const KEY_ID = /^[A-Za-z0-9_-]{22}$/;

export function isKeyId(value: unknown): value is string {
  return typeof value === "string" && KEY_ID.test(value);
}

export function formatToken({ keyId, nonce, bytes }: EncryptedToken): string {
  return [FORMAT, keyId, encodeBase64(nonce), encodeBase64(bytes)].join(".");
}

/** Undefined for anything that is not exactly what `formatToken` writes. */
export function parseToken(text: string): EncryptedToken | undefined {
  const [format, keyId, nonceText, bytesText, ...rest] = text.split(".", 6);
  if (format !== FORMAT || !isKeyId(keyId) || rest.length > 0) return undefined;
  const nonce = decodeBase64(nonceText);
  const bytes = decodeBase64(bytesText);
  if (nonce?.length !== NONCE_BYTES || bytes === undefined) return undefined;
  return { keyId, nonce, bytes };
}

// Node reads almost any text as base64; only the one spelling that it would write itself counts.
function decodeBase64(text: string | undefined): Buffer | undefined {
  if (text === undefined) return undefined;
  const bytes = Buffer.from(text, "base64url");
  return encodeBase64(bytes) === text ? bytes : undefined;
}

function encodeBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64url");
}
