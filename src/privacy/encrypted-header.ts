import { isKeyId } from "./encrypted-token.ts";

/** What a message says about its sealed fields: which key, and where. */
export interface EncryptedFields {
  readonly keyId: string;
  readonly fields: readonly string[];
}

const MAX_FIELDS = 200;
const MAX_FIELD_LENGTH = 512;
const MAX_HEADER_LENGTH = 8_192;

/** One line of ASCII, since not every transport carries anything else in a header. */
export function formatEncryptedHeader({ keyId, fields }: EncryptedFields): string {
  return JSON.stringify({ key: keyId, fields }).replace(
    /[^\x20-\x7e]/g,
    (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** Undefined for anything but what we write ourselves: headers come from outside. */
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

/** Whether these can be the fields of a contract, or of a message that came in. */
export function isFieldList(fields: unknown): fields is readonly string[] {
  return (
    Array.isArray(fields) &&
    fields.length > 0 &&
    fields.length <= MAX_FIELDS &&
    fields.every((field) => typeof field === "string" && field !== "" && field.length <= MAX_FIELD_LENGTH)
  );
}
