import { NONCE_BYTES } from "./cipher.ts";

/** The parsed text of `$sealed`: the id of the key, the nonce and the ciphertext. */
export interface EncryptedToken {
  readonly keyId: string;
  readonly nonce: Uint8Array;
  readonly bytes: Uint8Array;
}

/** The version of the token format, which fixes the algorithms and the associated data. Other versions are rejected. */
export const FORMAT = "1";
const KEY_ID = /^[A-Za-z0-9_-]{22}$/;

export function isKeyId(value: unknown): value is string {
  return typeof value === "string" && KEY_ID.test(value);
}

export function formatToken({ keyId, nonce, bytes }: EncryptedToken): string {
  return [FORMAT, keyId, encodeBase64(nonce), encodeBase64(bytes)].join(".");
}

/** Parses the output of `formatToken`. Returns undefined for any other text. */
export function parseToken(text: string): EncryptedToken | undefined {
  const [format, keyId, nonceText, bytesText, ...rest] = text.split(".", 6);
  if (format !== FORMAT || !isKeyId(keyId) || rest.length > 0) return undefined;
  const nonce = decodeBase64(nonceText);
  const bytes = decodeBase64(bytesText);
  if (nonce?.length !== NONCE_BYTES || bytes === undefined) return undefined;
  return { keyId, nonce, bytes };
}

// Node accepts almost any text as base64. Only the canonical encoding is valid here.
function decodeBase64(text: string | undefined): Buffer | undefined {
  if (text === undefined) return undefined;
  const bytes = Buffer.from(text, "base64url");
  return encodeBase64(bytes) === text ? bytes : undefined;
}

function encodeBase64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64url");
}

/** The header that lists the encrypted fields of a message and the id of their key. */
export interface EncryptedFields {
  readonly keyId: string;
  readonly fields: readonly string[];
}

const MAX_FIELDS = 200;
const MAX_FIELD_LENGTH = 512;
const MAX_HEADER_LENGTH = 8_192;

/** Formats the header as one line of ASCII, because some transports allow only ASCII in headers. */
export function formatEncryptedHeader({ keyId, fields }: EncryptedFields): string {
  return JSON.stringify({ key: keyId, fields }).replace(
    /[^\x20-\x7e]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Parses the output of `formatEncryptedHeader`. Returns undefined for any other text, because headers are untrusted. */
export function parseEncryptedHeader(text: string): EncryptedFields | undefined {
  if (text.length > MAX_HEADER_LENGTH) return undefined;
  const { key, fields } = jsonObject(text);
  if (!isKeyId(key) || !isFieldList(fields)) return undefined;
  return { keyId: key, fields };
}

function jsonObject(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Checks the field list of a contract or of a received header. */
export function isFieldList(fields: unknown): fields is readonly string[] {
  return (
    Array.isArray(fields) &&
    fields.length > 0 &&
    fields.length <= MAX_FIELDS &&
    fields.every((field) => typeof field === "string" && field !== "" && field.length <= MAX_FIELD_LENGTH)
  );
}
