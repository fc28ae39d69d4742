import { runInMessageContext } from "../message/index.ts";
import type { Attempt } from "./attempt.ts";
import type { BatchContext, HandlerContext, Received } from "./handler.ts";

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
