import { SagaboxError } from "../errors/index.ts";
import {
  decodeJson,
  type Json,
  type Message,
  parseIdTime,
  parseReferences,
  supersedesHeader,
  undoesHeader,
} from "../message/index.ts";
import { type CommitStatement, type OwnedTransaction, toArrayLiteral } from "../storage/index.ts";
import { ackStatement, type Attempt, runAttempt } from "./attempt.ts";
import type { InboxEngine } from "./engine.ts";
import { findEarlierOutcome, type Outcome, type Receipt, runHandler } from "./receive-once.ts";
import type { ConsumerDefinition } from "./registry.ts";

/** The ids of earlier commands of one type, with the topic of that type at this consumer. */
export interface CommandReferences {
  readonly type: string;
  readonly topic: string;
  readonly ids: readonly string[];
}

/** The earlier commands that a command refers to and that this consumer handles. */
export interface EarlierCommands {
  /** The commands that it undoes. */
  readonly undoes: CommandReferences | undefined;
  /** The commands that it repeats under a new id. They may or may not have been executed. */
  readonly supersedes: CommandReferences | undefined;
}

type ReferringMessage = Pick<Message, "kind" | "headers">;

/** True for a command that undoes or supersedes earlier ones. It is never handled in a batch. */
export function refersToOthers({ kind, headers }: ReferringMessage): boolean {
  return (
    kind === "command" && (headers[undoesHeader] !== undefined || headers[supersedesHeader] !== undefined)
  );
}

/**
 * Reads the references of a command. Undefined if it has none, or if this consumer handles none of the referenced types:
 * the inbox then knows nothing about them, and the handler has to find out what was done.
 */
export function readEarlierCommands(
  message: ReferringMessage,
  id: string,
  handlers: ConsumerDefinition["handlers"],
): EarlierCommands | undefined {
  if (!refersToOthers(message)) return undefined;
  const read = (header: string): CommandReferences | undefined => {
    const value = message.headers[header];
    if (value === undefined) return undefined;
    const { type, ids } = parseReferences(value);
    if (ids.includes(id)) {
      throw new SagaboxError("HEADER_INVALID", `The header "${header}" names the message that carries it.`);
    }
    const registration = handlers.get(type);
    return registration === undefined ? undefined : { type, topic: registration.topic, ids };
  };
  const [undoes, supersedes] = [read(undoesHeader), read(supersedesHeader)];
  return undoes === undefined && supersedes === undefined ? undefined : { undoes, supersedes };
}

type Claim = Pick<Receipt, "consumer" | "id" | "topic" | "type" | "payload" | "expiresAt">;

/** An earlier command that was executed. */
export interface CommandEffect {
  readonly id: string;
  /** The handler's result as stored JSON text. */
  readonly stored: string | null;
  readonly result: Json | undefined;
}

/**
 * Writes the dedupe rows of a command and of the commands it refers to, in one statement. A referenced command that was
 * never seen is recorded without effect, so that it is a duplicate if it arrives later; one that is running is waited for.
 * Returns false if the command itself was seen before or has expired.
 */
export async function claimCommands(
  tx: OwnedTransaction,
  { sql }: InboxEngine,
  { consumer, id, topic, type, payload, expiresAt }: Claim,
  earlier: readonly (CommandReferences | undefined)[],
): Promise<boolean> {
  const others = earlier.flatMap((one) => one?.ids.map((other) => ({ ...one, id: other })) ?? []);
  const { rows } = await tx.run<{ event_id: string }>(sql.claim, [
    consumer,
    id,
    topic,
    type,
    payload,
    expiresAt,
    toArrayLiteral(others.map((other) => other.id)),
    toArrayLiteral(others.map((other) => other.topic)),
    toArrayLiteral(others.map((other) => other.type)),
  ]);
  return rows.some((row) => row.event_id === id);
}

/** Finds the effect of one of the commands that was not undone. Call it after the commands were claimed. */
export async function findEffect(
  tx: OwnedTransaction,
  { sql }: InboxEngine,
  consumer: string,
  { ids }: CommandReferences,
): Promise<CommandEffect | undefined> {
  const { rows } = await tx.run<{ id: string; result: string | null }>(sql.effectOf, [
    consumer,
    toArrayLiteral(ids),
  ]);
  const [found] = rows;
  if (found === undefined) return undefined;
  const result = found.result === null ? undefined : decodeJson(found.result);
  return { id: found.id, stored: found.result, result };
}

/**
 * Why a handler was skipped. nothing_to_undo: the command was not executed and never will be. already_undone: another
 * undo ran before. superseded: an earlier copy of the command was executed.
 */
type SkipReason = "nothing_to_undo" | "already_undone" | "superseded";

/** "skipped": the command is settled and answered as done, but its handler did not run. */
export type ReferringOutcome<R> = Outcome<R> | { readonly kind: "skipped"; readonly reason: SkipReason };

interface Skip {
  readonly reason: SkipReason;
  readonly answer: Json | undefined;
  /** Updates the dedupe row of the skipped command. */
  readonly note: CommitStatement;
}

interface ReferringWork<R> {
  readonly earlier: EarlierCommands;
  readonly handle: (attempt: Attempt) => R | Promise<R>;
  /** Replies in place of the handler. */
  readonly answer: (attempt: Attempt, answer: Json | undefined) => Promise<void>;
}

/**
 * Like `receiveOnce`, for a command that undoes or supersedes earlier ones, in one transaction. All of them are claimed
 * first. An undo and its command, or two copies of a command, therefore wait for each other, and what is found after
 * the claim decides whether the handler runs.
 */
export function receiveReferring<R>(
  engine: InboxEngine,
  receipt: Receipt,
  { earlier, handle, answer }: ReferringWork<R>,
): Promise<ReferringOutcome<Awaited<R>>> {
  return runAttempt(engine, receipt, async (current) => {
    const { undoes, supersedes } = earlier;
    const isNew = await claimCommands(current.tx, engine, receipt, [undoes, supersedes]);
    if (!isNew) return findEarlierOutcome(current, engine, receipt);
    const skip =
      (await findSuperseding(current, engine, receipt, supersedes)) ??
      (await findSkip(current, engine, receipt, undoes));
    if (skip === undefined) return runHandler(current, engine, receipt, handle);
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
  supersedes: CommandReferences | undefined,
): Promise<Skip | undefined> {
  if (supersedes === undefined) return undefined;
  const effect = await findEffect(tx, engine, consumer, supersedes);
  if (effect === undefined) return undefined;
  const note = { statement: engine.sql.adopt, params: [consumer, id, effect.id, effect.stored] };
  return { reason: "superseded", answer: effect.result, note };
}

/** Dedupe rows are kept at least this long. */
const MIN_RETENTION_MS = 7 * 86_400_000;

// The dedupe row of an older command may be deleted, so a missing row does not prove that the command was not executed.
// The handler of the undo has to check.
function mayBeForgotten(ids: readonly string[], nowMs: number): boolean {
  return ids.some((id) => (parseIdTime(id) ?? nowMs) < nowMs - MIN_RETENTION_MS);
}

// Two undos of one command both update its row: the second one waits and finds it undone.
async function findSkip(
  { tx }: Attempt,
  { sql, clock }: InboxEngine,
  { consumer, id }: Receipt,
  undoes: CommandReferences | undefined,
): Promise<Skip | undefined> {
  if (undoes === undefined) return undefined;
  const ids = toArrayLiteral(undoes.ids);
  if ((await tx.run(sql.takeBack, [consumer, ids, id])).rowCount > 0) return undefined;
  const { rowCount: done } = await tx.run(sql.carriedOut, [consumer, ids]);
  if (done === 0 && mayBeForgotten(undoes.ids, clock.wallMs())) return undefined;
  const note = { statement: sql.withoutEffect, params: [consumer, id] };
  return { reason: done > 0 ? "already_undone" : "nothing_to_undo", answer: undefined, note };
}
