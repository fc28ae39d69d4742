// Messages: contracts, ids, JSON, and the envelope. Users define contracts here; all other rooms pass
// messages on as plain data. The payload stays JSON text from the publisher's transaction to the handler.
// Everything is pure except the context of the message being handled.
export type { AnyCommand, AnyContract, AnyEvent, AnyStream, Contract, PersonalFields } from "./contract.ts";
export type { DataOf, InputOf, KeyedOf, ReplyInputOf, ReplyOf } from "./contract.ts";
export { readMessageKey } from "./contract.ts";
export type { CommandOptions, ContractOptions, Priority } from "./contract.ts";
export type {
  AsJson,
  GivenInput,
  InputFor,
  InputSafe,
  JsonResult,
  SeenInput,
  WireOf,
  WireSafe,
} from "./json-types.ts";
export { decodeEnvelope } from "./message.ts";
export { cloudEventAttributes } from "./cloud-event-attributes.ts";
export { cloudEventInvalid } from "./cloud-events.ts";
export { fromCloudEvent, looksLikeCloudEvent, toCloudEvent, toCloudEventJson } from "./cloud-events.ts";
export type { CloudEvent } from "./cloud-events.ts";
export type { CloudEventOptions } from "./cloud-events.ts";
export { command, event, stream } from "./define-message.ts";
export { encodeEnvelope, envelopeVersion } from "./message.ts";
export {
  checkHeaders,
  commonHeaders,
  noHeaders,
  ownHeaders,
  parseHeaders,
  parseHeadersLeniently,
  particularHeaders,
  wireHeaders,
} from "./headers.ts";
export { decodeJson, encodeJson, type Json, type JsonLimits } from "./json.ts";
export { laneCount, laneFor, streamFor } from "./lane-hash.ts";
export type { Headers, Message, MessageKind, Published, PublishOptions } from "./message.ts";
export { currentMessageContext, deriveContext, runInMessageContext } from "./message-context.ts";
export type { ContextOverrides, DerivedContext, MessageContext } from "./message-context.ts";
export { createIdSource, isGeneratedId, isValidId, parseIdTime, type IdSource } from "./message-id.ts";
export { erased, isErased, isEncrypted, SUBJECT_ERASED } from "./personal.ts";
export type { Erased, FieldPath, WithPersonalFields, Personal, Encrypted } from "./personal.ts";
export {
  ENCRYPTION_TAG_BYTES,
  ENCRYPTED_CHUNK_BYTES,
  encryptedSize,
  decryptedSize,
  type EncryptionInfo,
} from "./attachment.ts";
export { asAttachment, attachment, findAttachments, isAttachment, isContentType } from "./attachment.ts";
export type { Attachment } from "./attachment.ts";
export { isBlobKey, isBlobReference, isStoreId, type BlobReference } from "./attachment.ts";
export { claimHeader, encryptedHeader, encryptedReplyHeader, unpackPlain } from "./payload.ts";
export type { HiddenField, PackedPayload, PackedMessage, Unpack, UnpackedPayload } from "./payload.ts";
export { poolRandomBytes, type RandomBytes } from "./message-id.ts";
export { isValidTopic, resolveTopic, type Routing } from "./contract.ts";
export { replyContract, replyHeader, readReplyTopic, replyTopicFor, findEncryptedReply } from "./reply.ts";
export type { ReplyBody, EncryptedReply } from "./reply.ts";
export { formatReferences, parseReferences, supersedesHeader, undoesHeader } from "./headers.ts";
export type { References } from "./headers.ts";
export {
  newChildSpan,
  formatTraceparent,
  newTrace,
  parseTraceparent,
  type TraceContext,
} from "./message-context.ts";
export { formatTracestate, parseTracestate } from "./message-context.ts";
export { upcast } from "./contract.ts";
export { validate, validateIgnoring, validateReply } from "./validate.ts";
export { toWireData, toWireReply, validateIfSync, wireSchema } from "./wire-form.ts";
