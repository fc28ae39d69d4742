import { SagaboxError } from "../errors/index.ts";

/** Listening, reading the outbox, settling, failures, sending at once, counting, and two for whatever is short. */
const HELD_BY_WORKER = 8;
/** Reading deliveries, acknowledging, retrying. */
const HELD_BY_CONSUMER = 3;
/** Without these nothing moves: listening, reading, settling, sending at once, and one for whatever is short. */
const MIN_FOR_WORKER = 5;

/**
 * How many connections are left for handlers. Each running handler has one of its own; the engine keeps the rest, so
 * that a handler never waits for a connection that only another waiting handler could give back.
 */
export function connectionsForHandlers(poolSize: number, consumers: number): number {
  const held = HELD_BY_WORKER + consumers * HELD_BY_CONSUMER;
  if (consumers === 0 || poolSize > MIN_FOR_WORKER + consumers) return Math.max(1, poolSize - held);
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `The pool has ${poolSize} connections, but a worker with ${consumers} consumer(s) needs at least ` +
      `${MIN_FOR_WORKER + consumers + 1}, and works well with more. Set the pool's \`max\` to ${held + 10} or more.`,
  );
}
