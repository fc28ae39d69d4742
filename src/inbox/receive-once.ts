import { SagaboxError } from "../errors/index.ts";
import { decodeJson, encodeJson, type Json } from "../message/index.ts";
import { toArrayLiteral, type CommitStatement } from "../storage/index.ts";
import type { AckWith } from "../transport/index.ts";
import { ackStatement, runAttempt, type Attempt, type AttemptLimits } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";

/** A message to be handled once by one consumer. */
export interface Receipt extends AttemptLimits {
  readonly consumer: string;
  readonly id: string;
  readonly topic: string;
  readonly type: string;
  /** Stored with the dedupe row, if not null. */
  readonly payload: string | null;
  readonly expiresAt: string | null;
  /** Statements that run only if the handler succeeds, sent together with COMMIT. */
  readonly onSuccess?: readonly CommitStatement[];
  /** Acknowledges the delivery in the same transaction. */
  readonly ackWith?: AckWith | undefined;
}

export type Outcome<R> =
  | { readonly kind: "processed"; readonly result: R; readonly durationMs: number }
  /** It was handled before. `result` is what the handler returned then, if anything. */
  | { readonly kind: "duplicate"; readonly result?: Json }
  /** It had expired by the clock of the database. The handler did not run. */
  | { readonly kind: "expired" };

/**
 * Runs the handler at most once per message and consumer. The dedupe row, the handler's writes and its published messages
 * commit in one transaction. The dedupe row is inserted first, so that a second worker waits there and does not run the
 * handler. Throws the handler's error after a rollback.
 */
export function receiveOnce<R>(
  engine: InboxEngine,
  receipt: Receipt,
  handle: (attempt: Attempt) => R | Promise<R>,
): Promise<Outcome<Awaited<R>>> {
  const { sql } = engine;
  const { consumer, id, topic, type, payload, expiresAt } = receipt;
  return runAttempt(engine, receipt, async (current) => {
    const entry = [consumer, id, topic, type, payload];
    const claim = await (expiresAt === null
      ? current.tx.run(sql.remember, entry)
      : current.tx.run(sql.rememberInTime, [...entry, expiresAt]));
    if (claim.rowCount === 0) return findEarlierOutcome(current, engine, receipt);
    return runHandler(current, engine, receipt, handle);
  });
}

/** Runs the handler after its dedupe row was inserted, stores duration and result, and commits. */
export async function runHandler<R>(
  current: Attempt,
  { sql, clock }: InboxEngine,
  receipt: Receipt,
  handle: (attempt: Attempt) => R | Promise<R>,
): Promise<Outcome<Awaited<R>>> {
  current.startHandling();
  const startedMs = clock.monotonicMs();
  const result = await handle(current);
  const stored = encodeResult(result);
  const durationMs = Math.max(0, clock.monotonicMs() - startedMs);
  const params = [receipt.consumer, receipt.id, Math.round(durationMs), stored];
  await current.commit([
    { statement: sql.finish, params },
    ...(receipt.onSuccess ?? []),
    ...(receipt.ackWith ? [ackStatement(receipt.ackWith)] : []),
  ]);
  return { kind: "processed", result, durationMs };
}

/** Finds out why the dedupe row was not inserted: the message is a duplicate or has expired. Rolls back. */
export async function findEarlierOutcome(
  { tx }: Attempt,
  { sql }: InboxEngine,
  { consumer, id }: Receipt,
): Promise<Outcome<never>> {
  const { rows } = await tx.run<{ result: string | null }>(sql.recall, [consumer, toArrayLiteral([id])]);
  await tx.rollback();
  if (rows[0] === undefined) return { kind: "expired" };
  return { kind: "duplicate", ...(rows[0].result === null ? {} : { result: decodeJson(rows[0].result) }) };
}

/** Encodes a handler's result for the dedupe row; null for undefined. Throws PAYLOAD_NOT_JSON if JSON cannot represent it. */
export function encodeResult(result: unknown): string | null {
  return result === undefined ? null : encodeJson(result, { what: "The handler's result, which is stored," });
}

/** Converts what a handler threw to an Error with a readable message and a stack. */
export function toHandlerError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error && typeof thrown.message === "string") return thrown;
  } catch {
    return new SagaboxError("HANDLER_FAILED", "A handler threw something that cannot be read.");
  }
  if (typeof thrown === "string") {
    // The string becomes part of the message, from which personal data is removed.
    return new SagaboxError("HANDLER_FAILED", `A handler threw a string instead of an error: ${thrown}`);
  }
  return new SagaboxError(
    "HANDLER_FAILED",
    `A handler threw something that is not an error (${typeof thrown}).`,
    {
      cause: thrown,
    },
  );
}
