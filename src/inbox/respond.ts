import { describeFailure } from "../dead-letter/index.ts";
import { isSagaboxError } from "../errors/index.ts";
import type { Attempt } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import type { BatchContext, BusTransaction, HandlerContext, OutgoingScope, Received } from "./handler.ts";
import {
  type AnyContract,
  type Json,
  type Message,
  readReplyTopic,
  type ReplyBody,
  replyContract,
  runInMessageContext,
  toWireReply,
} from "../message/index.ts";
import { wireDataOf } from "./read-message.ts";

type RequestMessage = Omit<Message, "data">;

/** Why a command was not executed. */
export interface FailureReply {
  readonly reason: string;
  readonly error: Error;
}

/**
 * Publishes the reply in the transaction of the effect, if the command requested one. `sealed` names the command if its
 * reply has encrypted fields.
 */
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

/** Publishes a failure reply for a command that was dead-lettered, ignored or refused, if it requested one. */
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
    // A full outbox must not prevent the dead letter. The requester gets a timeout instead of this reply.
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
  // Replies to a saga have its id as their key, so that they arrive in order and at one worker.
  const options = message.sagaId === null ? {} : { key: message.sagaId };
  await runInContext(message, id, () => scope.publish(replyContract(topic), body, options));
}

/**
 * Validates what a command's handler returned against the reply schema, converts it to the form in which it is sent, and
 * encrypts its personal fields. The result of an event's handler is returned unchanged.
 */
export async function prepareReply(
  { encryptReply }: Pick<InboxEngine, "encryptReply">,
  contract: AnyContract,
  message: Received,
  answer: unknown,
  { tx }: Pick<Attempt, "tx">,
): Promise<unknown> {
  if (contract.kind !== "command") return answer;
  const reply = await toWireReply(contract, answer);
  return reply === undefined || encryptedReplyName(contract) === undefined
    ? reply
    : encryptReply(contract, wireDataOf(message), reply, tx);
}

/** The name of the command if its replies have encrypted fields, else undefined. */
export function encryptedReplyName({
  name,
  personal,
}: Pick<AnyContract, "name" | "personal">): string | undefined {
  return personal === null || personal.reply.length === 0 ? undefined : name;
}

/** A key that is equal for all attempts, so that systems outside the database can detect a repeated call. */
export function idempotencyKey(consumer: string, messageId: string): string {
  return `${consumer}:${messageId}`;
}

export function handlerContext(
  consumer: string,
  id: string,
  attemptNumber: number,
  attempt: Attempt,
): HandlerContext {
  return {
    tx: attempt.scope.tx as BusTransaction,
    get signal() {
      return attempt.signal;
    },
    idempotencyKey: idempotencyKey(consumer, id),
    attempt: attemptNumber,
    consumer,
    publish: attempt.scope.publish,
    start: attempt.scope.start,
    open: (attachment) => attempt.scope.open(attachment),
  };
}

export function batchContext(consumer: string, attempt: Attempt): BatchContext {
  return {
    tx: attempt.scope.tx as BusTransaction,
    get signal() {
      return attempt.signal;
    },
    consumer,
    publish: attempt.scope.publish,
    start: attempt.scope.start,
    open: (attachment) => attempt.scope.open(attachment),
    idempotencyKeyFor: ({ id }) => idempotencyKey(consumer, id),
  };
}

/** Runs work with this message as its context: messages published by it get its correlation id, causation id and trace. */
export function runInContext<T>(message: Omit<Received, "data">, id: string, work: () => T): T {
  const { correlationId, traceparent, sagaId } = message;
  return runInMessageContext(
    { messageId: id, correlationId, traceparent, ...(sagaId === null ? {} : { sagaId }) },
    work,
  );
}
