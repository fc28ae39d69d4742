import { runInMessageContext } from "../message/index.ts";
import type { Attempt } from "./attempt.ts";
import type { BatchContext, HandlerContext, Received } from "./handler.ts";

/** The same for every attempt: what is outside the database can recognise a repetition by it. */
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
    tx: attempt.tx,
    get signal() {
      return attempt.signal;
    },
    idempotencyKey: idempotencyKey(consumer, id),
    attempt: attemptNumber,
    consumer,
    publish: (contract, data, options) => attempt.scope.publish(contract, data, options),
    open: (attachment) => attempt.scope.open(attachment),
  };
}

export function batchContext(consumer: string, attempt: Attempt): BatchContext {
  return {
    tx: attempt.tx,
    get signal() {
      return attempt.signal;
    },
    consumer,
    publish: (contract, data, options) => attempt.scope.publish(contract, data, options),
    open: (attachment) => attempt.scope.open(attachment),
    idempotencyKeyOf: ({ id }) => idempotencyKey(consumer, id),
  };
}

/** What is published meanwhile was caused by this message and belongs to its trace. */
export function runInContext<T>(message: Omit<Received, "data">, id: string, work: () => T): T {
  const { correlationId, traceparent, sagaId } = message;
  return runInMessageContext(
    { messageId: id, correlationId, traceparent, ...(sagaId === null ? {} : { sagaId }) },
    work,
  );
}
