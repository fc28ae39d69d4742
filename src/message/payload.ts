import type { AnyContract } from "./contract.ts";
import { decodeJson, type Json } from "./json.ts";
import type { Headers, Message } from "./message.ts";

/** Says that the data is a reference to where the payload lies. Set by the claim check alone. */
export const claimHeader = "sagabox-claim";
/** Lists the fields of the payload that are sealed. Set by the privacy room alone. */
export const encryptedHeader = "sagabox-sealed";
/** Names the key with which fields of a reply are sealed, where its body lies elsewhere and cannot tell. */
export const encryptedReplyHeader = "sagabox-sealed-reply";

/** The data of a message as it is stored and sent, and the headers that say how to read it. */
export interface PackedPayload {
  readonly data: string;
  readonly headers: Headers;
}

/** When a message becomes due: after a delay, or at a time since the epoch. */
interface Schedule {
  readonly delayMs: number | null;
  readonly atMs: number | null;
}

/** What packing may hang on. */
export interface PackedMessage extends Pick<
  Message,
  "id" | "kind" | "type" | "schemaVersion" | "topic" | "key"
> {
  /** Null when it is due at once. */
  readonly schedule: Schedule | null;
}

/** A personal value that could not be given, where it would be, and why. */
export interface HiddenField {
  readonly path: readonly (string | number)[];
  readonly as: "erased" | "sealed";
}

export interface UnpackedPayload {
  readonly data: Json;
  readonly hidden: readonly HiddenField[];
  /** Personal texts that were opened: they must not show up in what is written about the message. */
  readonly secrets: readonly string[];
}

/** What arrived → data, not yet upcast and validated. Throws what can never get better, or what may be tried again. */
export type Unpack = (contract: AnyContract, message: Message) => UnpackedPayload | Promise<UnpackedPayload>;

const nothing: readonly never[] = [];

/** For messages whose data is in them, in clear. */
export function unpackPlain(_: AnyContract, { data }: Message): UnpackedPayload {
  return { data: decodeJson(data), hidden: nothing, secrets: nothing };
}
