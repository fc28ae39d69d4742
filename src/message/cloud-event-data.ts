import { SagaboxError } from "../errors/index.ts";
import { isWellFormed } from "./printable.ts";

const jsonType = /^(?:application|text)\/json$|^[\w.-]+\/[\w.-]+\+json$/;
const textType = /^text\/[\w.+-]+$|^application\/xml$|^[\w.-]+\/[\w.-]+\+xml$/;
const strict = new TextDecoder("utf-8", { fatal: true });

/**
 * Returns the data of an event as JSON text. JSON stays unchanged and other text becomes a JSON string, as in
 * structured mode. Throws CLOUD_EVENT_INVALID for binary data.
 */
export function readEventData(data: string | Uint8Array | null, contentType: string | undefined): string {
  if (data === null || data.length === 0) return "null";
  const form = detectForm(contentType);
  const text = typeof data === "string" ? data : decodeUtf8(data);
  return form === "json" ? checkJson(text) : JSON.stringify(checkText(text));
}

/**
 * Returns the text unchanged, or throws CLOUD_EVENT_INVALID if it is not JSON. `decodeJson` checks its
 * content later.
 */
export function checkJson(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    // The engine's own message would quote the data.
    throw cloudEventInvalid("data", "must be JSON, as its content type says");
  }
}

export function decodeBase64(data: unknown): Uint8Array {
  if (
    typeof data !== "string" ||
    !/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(data)
  ) {
    throw cloudEventInvalid("data_base64", "must be a Base64 string");
  }
  return Buffer.from(data, "base64");
}

export function isJsonType(contentType: string): boolean {
  return jsonType.test(parseMediaType(contentType));
}

export function cloudEventInvalid(attribute: string, rule: string, cause?: unknown): SagaboxError {
  const text = `The CloudEvent cannot be read: ${attribute} ${rule}.`;
  return new SagaboxError("CLOUD_EVENT_INVALID", text, cause === undefined ? {} : { cause });
}

function checkText(text: string): string {
  if (!text.includes("\0") && isWellFormed(text)) return text;
  throw cloudEventInvalid("data", "must not contain NUL or broken Unicode");
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return strict.decode(bytes);
  } catch (cause) {
    throw cloudEventInvalid("data", "must be UTF-8", cause);
  }
}

// Data without a content type is JSON, as in the CloudEvents JSON format.
function detectForm(contentType = "application/json"): "json" | "text" {
  const [, ...parameters] = contentType.toLowerCase().split(";");
  const charset = parameters.map((one) => one.trim()).find((one) => one.startsWith("charset="));
  if (charset !== undefined && !/^charset="?(?:utf-?8|us-ascii)"?$/.test(charset)) {
    throw cloudEventInvalid("datacontenttype", "must not name a character set other than UTF-8");
  }
  const media = parseMediaType(contentType);
  if (jsonType.test(media)) return "json";
  if (textType.test(media)) return "text";
  throw cloudEventInvalid("datacontenttype", "must be JSON or text; other data is not supported");
}

function parseMediaType(contentType: string): string {
  return (contentType.split(";", 1)[0] ?? "").trim().toLowerCase();
}
