import { describeFailure } from "../dead-letter/index.ts";
import { isSagaboxError } from "../errors/index.ts";
import { replyContract, readReplyTopic, type Json, type Message, type ReplyBody } from "../message/index.ts";
import type { OutgoingScope } from "./handler.ts";
import { runInContext } from "./handler-context.ts";

type RequestMessage = Omit<Message, "data">;

/** Why a command was not carried out. */
export interface FailureReply {
  readonly reason: string;
  readonly error: Error;
}

/** Publishes the answer, if the message asked for one, in the transaction that holds its effect. */
export async function respond(
  scope: OutgoingScope,
  message: RequestMessage,
  id: string,
  answer: unknown,
  sealed?: string,
): Promise<void> {
  const reply = answer === undefined ? {} : { reply: answer as Json };
  const how = sealed === undefined ? {} : { sealed };
  await sendReply(scope, message, id, { requestId: id, outcome: "done", ...reply, ...how });
}

/** The same for a command that was given up. */
export async function respondFailed(
  scope: OutgoingScope,
  message: RequestMessage,
  id: string,
  { reason, error }: FailureReply,
): Promise<void> {
  const text = describeFailure(error).errorMessage.replace(/\p{Cs}/gu, "\uFFFD");
  try {
    await sendReply(scope, message, id, { requestId: id, outcome: "failed", reason, error: text });
  } catch (thrown) {
    // The dead letter must be written all the same; whoever asked runs into the timeout.
    if (!isSagaboxError(thrown, "OUTBOX_FULL")) throw thrown;
  }
}

async function sendReply(
  scope: OutgoingScope,
  message: RequestMessage,
  id: string,
  body: ReplyBody,
): Promise<void> {
  const topic = message.kind === "command" ? readReplyTopic(message.headers) : undefined;
  if (topic === undefined) return;
  // The replies to one saga share its key: they arrive in order, and at one member.
  const options = message.sagaId === null ? {} : { key: message.sagaId };
  await runInContext(message, id, () => scope.publish(replyContract(topic), body, options));
}
