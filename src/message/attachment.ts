import type { StandardSchemaV1 } from "@standard-schema/spec";
import { asEncryptionInfo, type EncryptionInfo } from "./attachment-encryption.ts";
import { isBlobReference, type BlobReference } from "./blob-reference.ts";

/**
 * A file that belongs to a message: `bus.attach()` returns it, and `context.open()` reads it. It is plain
 * JSON; the bytes are in a store.
 */
// A type alias, because an interface is not assignable to `Json`.
export type Attachment = {
  readonly $attachment: {
    readonly [Field in keyof BlobReference]: BlobReference[Field];
  } & {
    readonly contentType: string;
    /** How the file is encrypted. Absent if it is stored in plain text. */
    readonly sealed?: EncryptionInfo;
  };
};

const CONTENT_TYPE =
  /^[a-z0-9!#$&^_.+-]{1,127}\/[a-z0-9!#$&^_.+-]{1,127}(?:; ?[a-z0-9-]{1,32}=[A-Za-z0-9_.:+-]{1,127})*$/i;
const ATTACHMENT_MARK = '"$attachment"';

export function isContentType(value: unknown): value is string {
  return typeof value === "string" && value.length <= 255 && CONTENT_TYPE.test(value);
}

/**
 * Returns the value as an attachment with its fields in a fixed order, or undefined if it is not an
 * attachment.
 */
export function asAttachment(value: unknown): Attachment | undefined {
  if (!isRecord(value) || Object.keys(value).length !== 1 || !Object.hasOwn(value, "$attachment"))
    return undefined;
  const inner = value["$attachment"];
  if (!isRecord(inner)) return undefined;
  const { contentType, sealed, ...reference } = inner;
  if (!isContentType(contentType) || !isBlobReference(reference)) return undefined;
  const { store, key, bytes, sha256 } = reference;
  const clear = { store, key, bytes, sha256, contentType };
  if (!Object.hasOwn(inner, "sealed")) return { $attachment: clear };
  // If the encryption cannot be read, the attachment must not pass as an unencrypted one.
  const encryption = asEncryptionInfo(sealed, bytes);
  return encryption === undefined ? undefined : { $attachment: { ...clear, sealed: encryption } };
}

/**
 * Returns true if the value is an attachment. For a field of your schema library, as in
 * `z.custom<Attachment>(isAttachment)`.
 */
export function isAttachment(value: unknown): value is Attachment {
  return asAttachment(value) !== undefined;
}

/** Returns the schema of a message that consists of one attachment. */
export function attachment(): StandardSchemaV1<Attachment, Attachment> {
  return schema;
}

const schema: StandardSchemaV1<Attachment, Attachment> = {
  "~standard": {
    version: 1,
    vendor: "sagabox",
    validate: (value) => {
      const found = asAttachment(value);
      return found === undefined
        ? { issues: [{ message: "must be an attachment made by bus.attach()" }] }
        : { value: found };
    },
  },
};

/**
 * Finds all attachments in the JSON text of a payload. A text without attachments costs one native search.
 */
export function findAttachments(text: string): readonly Attachment[] {
  if (!text.includes(ATTACHMENT_MARK)) return [];
  const found: Attachment[] = [];
  const open: unknown[] = [JSON.parse(text)];
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    if (typeof value !== "object" || value === null) continue;
    const one = asAttachment(value);
    if (one === undefined) for (const inner of Object.values(value)) open.push(inner);
    else found.push(one);
  }
  return found;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
