import type { StandardSchemaV1 } from "@standard-schema/spec";
import { event } from "./define-message.ts";
import type { Json } from "./json.ts";
import type { Headers } from "./message.ts";
import { isValidTopic } from "./contract.ts";

/** The body of a reply to a request. `reply` is absent if the command defines none. */
export type ReplyBody =
  | {
      readonly requestId: string;
      readonly outcome: "done";
      readonly reply?: Json;
      /** Name of the command whose personal fields are encrypted in the reply. */
      readonly sealed?: string;
    }
  | {
      readonly requestId: string;
      readonly outcome: "failed";
      /** Why the command failed: the reason of a dead letter, `refused` or `ignored`. */
      readonly reason: string;
      readonly error: string;
    };

/** A reply with encrypted fields, and the command that defines which ones. */
export type EncryptedReply = Extract<ReplyBody, { outcome: "done" }> & {
  readonly reply: Json;
  readonly sealed: string;
};

/** Header that names the topic of the reply. Its prefix is reserved, so callers cannot set it. */
export const replyHeader = "sagabox-reply-to";
const topicPrefix = "replies.";
const replyName = "sagabox.reply";

/**
 * Returns the topic on which a service receives replies. Services whose names differ only in special
 * characters share one.
 */
export function replyTopicFor(service: string): string {
  return topicPrefix + service.replace(/[^A-Za-z0-9._-]/g, "-").slice(0, 200);
}

/**
 * Returns the topic for the reply, or undefined if the message asks for none. Topics without the reply prefix
 * are ignored.
 */
export function readReplyTopic(headers: Headers): string | undefined {
  const topic = headers[replyHeader];
  return topic?.startsWith(topicPrefix) === true && isValidTopic(topic) ? topic : undefined;
}

const schema: StandardSchemaV1<ReplyBody, ReplyBody> = {
  "~standard": {
    version: 1,
    vendor: "sagabox",
    validate: (value) =>
      isReplyBody(value) ? { value } : { issues: [{ message: "must be a reply to a request" }] },
  },
};

function isReplyBody(value: unknown): value is ReplyBody {
  if (typeof value !== "object" || value === null) return false;
  const { requestId, outcome, reason, error } = value as Record<string, unknown>;
  if (typeof requestId !== "string" || requestId === "") return false;
  return (
    outcome === "done" || (outcome === "failed" && [reason, error].every((text) => typeof text === "string"))
  );
}

/**
 * Creates the contract of replies on this topic. It checks the frame only; both sides validate the reply
 * against the command's reply schema.
 */
export function replyContract(topic: string) {
  return event(replyName, { schema, topic });
}

/** Returns the reply in a message of this type if it has encrypted fields, else undefined. */
export function findEncryptedReply(type: string, data: unknown): EncryptedReply | undefined {
  if (type !== replyName || !isReplyBody(data) || data.outcome !== "done") return undefined;
  const { sealed, reply } = data;
  return typeof sealed === "string" && reply !== undefined ? { ...data, sealed, reply } : undefined;
}
