import { SagaboxError } from "../errors/index.ts";
import { text } from "../options/index.ts";
import type { OwnedTransaction } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import { lastErasure, logErasure, proofOf, type Erasure } from "./erasure-log.ts";
import { remainsAfter, type Remains } from "./remains.ts";
import type { ErasedSubject } from "./subject-erased.ts";
import { sweepErasure, type Scrubbed } from "./sweep.ts";

export interface EraseOptions {
  /** Why, for the log: the number of the request, not the name of the person. */
  readonly reason: string;
  /** Who does it. Default "unknown". */
  readonly actor?: string;
  /** Erase although sagas about the person are running: they are parked, each with an incident. Default false. */
  readonly force?: boolean;
  /** Only tell what would be done. Default false. */
  readonly dryRun?: boolean;
}

/** A saga that is not over. */
export interface LiveSaga {
  readonly id: string;
  readonly type: string;
  readonly status: string;
}

/** What was destroyed, and what is left where and for how long. */
export interface ErasureReport {
  /** "erased" · "already": nothing was left to destroy since the last time · "dry run": nothing was done. */
  readonly outcome: "erased" | "already" | "dry run";
  /** The keyed hash under which the person appears in the log. */
  readonly subject: string;
  /** The line in the log; null in a dry run of a person never erased. */
  readonly erasure: Erasure | null;
  readonly keysDestroyed: number;
  readonly sagasParked: readonly LiveSaga[];
  readonly scrubbed: Scrubbed;
  /** Whether transactions that were open are over, so that no key of theirs can appear any more. */
  readonly swept: boolean;
  readonly remains: readonly Remains[];
}

export interface Eraser {
  readonly engine: PrivacyEngine;
  /** Runs work in a transaction in which a message can be published. */
  readonly transaction: <T>(
    work: (tx: OwnedTransaction, publish: (told: ErasedSubject) => Promise<unknown>) => Promise<T>,
  ) => Promise<T>;
  /** Tells the other processes to forget the keys of the person. */
  readonly announce: (subject: string) => void;
}

const ERASED = "the person it was about was erased";

/**
 * Destroys the keys of a person in one transaction together with the line in the log and the event; then removes what
 * was never sealed. A process that dies in between has erased: the sweep goes on elsewhere.
 */
export async function erase(eraser: Eraser, given: string, options: EraseOptions): Promise<ErasureReport> {
  const { engine } = eraser;
  const subject = engine.index.subject(given);
  const reason = text("reason", options.reason, { max: 1_000 });
  const actor = text("actor", options.actor ?? "unknown");
  if (options.dryRun === true) return dryRun(engine, subject);
  const done = await eraser.transaction(async (tx, publish) => {
    const { rows } = await tx.run<{ now: string }>(engine.sql.lockSubject, [subject]);
    const erasedAt = rows[0]?.now ?? "";
    await assertNotHeld(engine, tx, subject);
    const sagas = await liveSagas(engine, tx, subject);
    if (sagas.length > 0 && options.force !== true) throw busy(sagas);
    if (sagas.length > 0) await tx.run(engine.sql.parkSagas, [subject, ERASED, actor]);
    const destroyed = await tx.run<{ key_id: string }>(engine.sql.destroyKeys, [subject, erasedAt]);
    const keyIds = destroyed.rows.map(({ key_id }) => key_id).sort();
    const earlier = await lastErasure(engine, tx, subject);
    if (keyIds.length === 0 && sagas.length === 0 && earlier !== undefined)
      return { erasure: earlier, sagas, isNew: false };
    const proved = { subject, erasedAt, reason, actor, keyIds };
    const line = { ...proved, proof: proofOf(engine, proved) };
    const id = await logErasure(engine, tx, line);
    await publish({ subject, keyIds, erasedAt });
    return { erasure: { id, ...line }, sagas, isNew: true };
  });
  engine.cache.forget(subject);
  if (done.isNew) eraser.announce(subject);
  const { swept, scrubbed } = await sweepErasure(engine, done.erasure);
  return {
    outcome: done.isNew ? "erased" : "already",
    subject,
    erasure: done.erasure,
    keysDestroyed: done.isNew ? done.erasure.keyIds.length : 0,
    sagasParked: done.sagas,
    scrubbed,
    swept,
    remains: remainsAfter(engine),
  };
}

/** Ends a saga that was parked because its person was erased. False when it is none of these. */
export async function endErasedSaga(
  { database, sql }: PrivacyEngine,
  id: string,
  { reason, actor = "unknown" }: Pick<EraseOptions, "reason" | "actor">,
): Promise<boolean> {
  const params = [text("id", id), ERASED, text("reason", reason, { max: 1_000 }), text("actor", actor)];
  return (await database.run(sql.endSaga, params)).rows.length > 0;
}

async function dryRun(engine: PrivacyEngine, subject: string): Promise<ErasureReport> {
  const { database, sql } = engine;
  await assertNotHeld(engine, database, subject);
  const keys = await database.run<{ live: boolean }>(sql.keysOf, [subject]);
  return {
    outcome: "dry run",
    subject,
    erasure: (await lastErasure(engine, database, subject)) ?? null,
    keysDestroyed: keys.rows.filter(({ live }) => live).length,
    sagasParked: await liveSagas(engine, database, subject),
    scrubbed: { deadLetters: 0, results: 0 },
    swept: false,
    remains: remainsAfter(engine),
  };
}

type Asked = Pick<OwnedTransaction, "run">;

async function liveSagas({ sql }: PrivacyEngine, tx: Asked, subject: string): Promise<readonly LiveSaga[]> {
  return (await tx.run<LiveSaga>(sql.liveSagas, [subject])).rows;
}

async function assertNotHeld({ sql }: PrivacyEngine, tx: Asked, subject: string): Promise<void> {
  const { rows } = await tx.run<{ held_at: string }>(sql.openHold, [subject]);
  if (rows[0] === undefined) return;
  throw new SagaboxError(
    "PRIVACY_SUBJECT_HELD",
    `The data of this person are held since ${rows[0].held_at} and were not erased. Release them first.`,
  );
}

function busy(sagas: readonly LiveSaga[]): SagaboxError {
  const list = sagas.slice(0, 20).map(({ id, type, status }) => `${type} ${id} (${status})`);
  return new SagaboxError(
    "PRIVACY_SUBJECT_BUSY",
    `${sagas.length} saga(s) about this person are still running: ${list.join(", ")}. ` +
      "Wait for them or cancel them; with `force` they are parked for a person to decide.",
  );
}
