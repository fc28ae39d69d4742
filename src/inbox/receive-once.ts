import { SagaboxError } from "../errors/index.ts";
import { decodeJson, encodeJson, type Json } from "../message/index.ts";
import { toArrayLiteral, type CommitStatement } from "../storage/index.ts";
import type { AckWith } from "../transport/index.ts";
import { ackStatement, attempt, type Attempt, type AttemptLimits } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";

/** One message for one consumer. */
export interface Receipt extends AttemptLimits {
  readonly consumer: string;
  readonly id: string;
  readonly topic: string;
  readonly type: string;
  /** Kept with the dedupe row if given. */
  readonly payload: string | null;
  readonly expiresAt: string | null;
  /** Statements that belong to the success, sent together with the COMMIT. */
  readonly onSuccess?: readonly CommitStatement[];
  /** Acknowledges the delivery in the same transaction. */
  readonly ackWith?: AckWith | undefined;
}

export type Outcome<R> =
  | { readonly kind: "processed"; readonly result: R; readonly durationMs: number }
  /** Handled before; the result of that time, if it had one. */
  | { readonly kind: "duplicate"; readonly result?: Json }
  /** Its time to live was over by the database's clock; the handler did not run. */
  | { readonly kind: "expired" };

/**
 * Dedupe row, the handler's writes and what it publishes: one transaction. Throws what the handler threw, after
 * everything was rolled back. The dedupe row goes first, so that two racing workers meet there and not in the
 * handler; duration and result are added by a statement that travels with the COMMIT.
 */
export function receiveOnce<R>(
  engine: InboxEngine,
  receipt: Receipt,
  handle: (attempt: Attempt) => R | Promise<R>,
): Promise<Outcome<Awaited<R>>> {
  const { sql } = engine;
  const { consumer, id, topic, type, payload, expiresAt } = receipt;
  return attempt(engine, receipt, async (current) => {
    const entry = [consumer, id, topic, type, payload];
    const claim = await (expiresAt === null
      ? current.tx.run(sql.remember, entry)
      : current.tx.run(sql.rememberInTime, [...entry, expiresAt]));
    if (claim.rowCount === 0) return recall(current, engine, receipt);
    return carryOut(current, engine, receipt, handle);
  });
}

/** Runs the handler of a message whose dedupe row is written, and commits. */
export async function carryOut<R>(
  current: Attempt,
  { sql, clock }: InboxEngine,
  receipt: Receipt,
  handle: (attempt: Attempt) => R | Promise<R>,
): Promise<Outcome<Awaited<R>>> {
  current.startHandling();
  const startedMs = clock.monotonicMs();
  const result = await handle(current);
  const stored = storedResult(result);
  const durationMs = Math.max(0, clock.monotonicMs() - startedMs);
  const params = [receipt.consumer, receipt.id, Math.round(durationMs), stored];
  await current.commit([
    { statement: sql.finish, params },
    ...(receipt.onSuccess ?? []),
    ...(receipt.ackWith ? [ackStatement(receipt.ackWith)] : []),
  ]);
  return { kind: "processed", result, durationMs };
}

/** What became of a message whose dedupe row could not be written. */
export async function recall(
  { tx }: Attempt,
  { sql }: InboxEngine,
  { consumer, id }: Receipt,
): Promise<Outcome<never>> {
  const { rows } = await tx.run<{ result: string | null }>(sql.recall, [consumer, toArrayLiteral([id])]);
  await tx.rollback();
  if (rows[0] === undefined) return { kind: "expired" };
  return { kind: "duplicate", ...(rows[0].result === null ? {} : { result: decodeJson(rows[0].result) }) };
}

/** A result as it is kept, or null where there is none. What JSON cannot carry is the handler's failure. */
export function storedResult(result: unknown): string | null {
  return result === undefined
    ? null
    : encodeJson(result, { what: "What the handler returned, which is kept," });
}

/** What is not an error, or one whose message is no text, becomes one: everything after has a message and a stack. */
export function asError(thrown: unknown): Error {
  try {
    if (thrown instanceof Error && typeof thrown.message === "string") return thrown;
  } catch {
    return new SagaboxError("HANDLER_FAILED", "A handler threw something that cannot be read.");
  }
  if (typeof thrown === "string") {
    // Kept like the message of an error, and cleaned of personal texts like one.
    return new SagaboxError("HANDLER_FAILED", `A handler threw a text instead of an error: ${thrown}`);
  }
  return new SagaboxError(
    "HANDLER_FAILED",
    `A handler threw something that is not an error (${typeof thrown}).`,
    {
      cause: thrown,
    },
  );
}
