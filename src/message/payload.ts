import type { AnyContract } from "./contract.ts";
import { decodeJson, type Json } from "./json.ts";
import type { Headers, Message } from "./message.ts";

/** Marks data that is a reference to the stored payload. Only the claim check sets it. */
export const claimHeader = "sagabox-claim";
/** Lists the encrypted fields of the payload. Only the privacy room sets it. */
export const encryptedHeader = "sagabox-sealed";
/** Names the key of the encrypted fields of a reply whose body is in a store. */
export const encryptedReplyHeader = "sagabox-sealed-reply";

/** The data of a message as it is stored and sent, with the headers needed to read it. */
export interface PackedPayload {
  readonly data: string;
  readonly headers: Headers;
}

/** When a message becomes due: after a delay, or at a time in milliseconds since the epoch. */
interface Schedule {
  readonly delayMs: number | null;
  readonly atMs: number | null;
}

/** The fields of a message that packing may depend on. */
export interface PackedMessage extends Pick<
  Message,
  "id" | "kind" | "type" | "schemaVersion" | "topic" | "key"
> {
  /** Null if the message is due immediately. */
  readonly schedule: Schedule | null;
}

/** A personal value that could not be decrypted: its path, and why. */
export interface HiddenField {
  readonly path: readonly (string | number)[];
  readonly as: "erased" | "sealed";
}

export interface UnpackedPayload {
  readonly data: Json;
  readonly hidden: readonly HiddenField[];
  /** Decrypted personal strings. They must not appear in errors or logs about the message. */
  readonly secrets: readonly string[];
}

/**
 * Turns a received message into data that is not yet upcast and validated. Throws permanent errors and
 * retryable ones.
 */
export type Unpack = (contract: AnyContract, message: Message) => UnpackedPayload | Promise<UnpackedPayload>;

const nothing: readonly never[] = [];

/** Unpacks a message with inline, unencrypted data. */
export function unpackPlain(_: AnyContract, { data }: Message): UnpackedPayload {
  return { data: decodeJson(data), hidden: nothing, secrets: nothing };
}
