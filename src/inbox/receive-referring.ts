import { parseIdTime, type Json } from "../message/index.ts";
import { toArrayLiteral, type CommitStatement } from "../storage/index.ts";
import { ackStatement, attempt, type Attempt } from "./attempt.ts";
import { claimCommands, findEffect } from "./claim-commands.ts";
import type { InboxEngine } from "./engine.ts";
import { carryOut, recall, type Outcome, type Receipt } from "./receive-once.ts";
import type { Earlier, EarlierCommands } from "./references.ts";

/** nothing_to_undo: it was not, and never will be, carried out · already_undone · superseded: it was done before. */
export type SkipReason = "nothing_to_undo" | "already_undone" | "superseded";

/** Skipped: settled and answered as done, without its handler. */
export type ReferringOutcome<R> = Outcome<R> | { readonly kind: "skipped"; readonly reason: SkipReason };

interface Skip {
  readonly reason: SkipReason;
  readonly answer: Json | undefined;
  /** What is noted of the command itself. */
  readonly note: CommitStatement;
}

export interface ReferringWork<R> {
  readonly earlier: EarlierCommands;
  readonly handle: (attempt: Attempt) => R | Promise<R>;
  /** Answers instead of the handler. */
  readonly answer: (attempt: Attempt, answer: Json | undefined) => Promise<void>;
}

/**
 * Like `receiveOnce`, for a command that takes back or stands for earlier ones. They are claimed first, so that of an
 * undo and its do, or of two copies of a do, one waits for the other; what they find afterwards decides whether the
 * handler runs. All of it is one transaction.
 */
export function receiveReferring<R>(
  engine: InboxEngine,
  receipt: Receipt,
  { earlier, handle, answer }: ReferringWork<R>,
): Promise<ReferringOutcome<Awaited<R>>> {
  return attempt(engine, receipt, async (current) => {
    const { undoes, supersedes } = earlier;
    const claimed = await claimCommands(current.tx, engine, receipt, [undoes, supersedes]);
    if (!claimed) return recall(current, engine, receipt);
    const skip =
      (await findSuperseding(current, engine, receipt, supersedes)) ??
      (await findSkip(current, engine, receipt, undoes));
    if (skip === undefined) return carryOut(current, engine, receipt, handle);
    await answer(current, skip.answer);
    await current.commit([
      skip.note,
      ...(receipt.onSuccess ?? []),
      ...(receipt.ackWith ? [ackStatement(receipt.ackWith)] : []),
    ]);
    return { kind: "skipped", reason: skip.reason };
  });
}

async function findSuperseding(
  { tx }: Attempt,
  engine: InboxEngine,
  { consumer, id }: Receipt,
  supersedes: Earlier | undefined,
): Promise<Skip | undefined> {
  if (supersedes === undefined) return undefined;
  const effect = await findEffect(tx, engine, consumer, supersedes);
  if (effect === undefined) return undefined;
  const note = { statement: engine.sql.adopt, params: [consumer, id, effect.id, effect.stored] };
  return { reason: "superseded", answer: effect.result, note };
}

/** No dedupe row is forgotten earlier than this. */
const REMEMBERED_MS = 7 * 86_400_000;

// Of a command that old nobody can say that it was not carried out: its undo must look for itself.
function mayBeForgotten(ids: readonly string[], nowMs: number): boolean {
  return ids.some((id) => (parseIdTime(id) ?? nowMs) < nowMs - REMEMBERED_MS);
}

// The update is what two undos of one command meet at: the second finds it taken back.
async function findSkip(
  { tx }: Attempt,
  { sql, clock }: InboxEngine,
  { consumer, id }: Receipt,
  undoes: Earlier | undefined,
): Promise<Skip | undefined> {
  if (undoes === undefined) return undefined;
  const ids = toArrayLiteral(undoes.ids);
  if ((await tx.run(sql.takeBack, [consumer, ids, id])).rowCount > 0) return undefined;
  const { rowCount: done } = await tx.run(sql.carriedOut, [consumer, ids]);
  if (done === 0 && mayBeForgotten(undoes.ids, clock.wallMs())) return undefined;
  const note = { statement: sql.withoutEffect, params: [consumer, id] };
  return { reason: done > 0 ? "already_undone" : "nothing_to_undo", answer: undefined, note };
}
