import type { StandardSchemaV1 } from "@standard-schema/spec";
import { event } from "./define-message.ts";
import type { Json } from "./json.ts";
import type { Headers } from "./message.ts";
import { isValidTopic } from "./topic.ts";

/** What travels back to whoever asked. `reply` is missing where the command has none. */
export type ReplyBody =
  | {
      readonly requestId: string;
      readonly outcome: "done";
      readonly reply?: Json;
      /** The command whose personal fields are sealed in the reply. */
      readonly sealed?: string;
    }
  | {
      readonly requestId: string;
      readonly outcome: "failed";
      /** Why the command was given up: a dead letter's reason, `refused` or `ignored`. */
      readonly reason: string;
      readonly error: string;
    };

/** A reply with sealed fields, and the command that says what they are bound to. */
export type EncryptedReply = Extract<ReplyBody, { outcome: "done" }> & {
  readonly reply: Json;
  readonly sealed: string;
};

/** Names the topic the reply goes to. Its prefix is ours, so no caller can set it by hand. */
export const replyHeader = "sagabox-reply-to";
const topicPrefix = "replies.";
const replyName = "sagabox.reply";

/** Where replies for a service arrive. Services whose names differ in special characters only share one. */
export function replyTopicFor(service: string): string {
  return topicPrefix + service.replace(/[^A-Za-z0-9._-]/g, "-").slice(0, 200);
}

/** Where this message wants its reply, if it wants one. Anything but a topic of replies is not followed. */
export function readReplyTopic(headers: Headers): string | undefined {
  const topic = headers[replyHeader];
  return topic?.startsWith(topicPrefix) === true && isValidTopic(topic) ? topic : undefined;
}

const schema: StandardSchemaV1<ReplyBody, ReplyBody> = {
  "~standard": {
    version: 1,
    vendor: "sagabox",
    validate: (value) =>
      isReplyBody(value) ? { value } : { issues: [{ message: "this is no reply to a request" }] },
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

/** The reply itself is held to the command's own schema, at both ends. */
export function replyContract(topic: string) {
  return event(replyName, { schema, topic });
}

/** The reply in a message of this type, if it has one with sealed fields. */
export function findEncryptedReply(type: string, data: unknown): EncryptedReply | undefined {
  if (type !== replyName || !isReplyBody(data) || data.outcome !== "done") return undefined;
  const { sealed, reply } = data;
  return typeof sealed === "string" && reply !== undefined ? { ...data, sealed, reply } : undefined;
}
