import { SagaboxError } from "../errors/index.ts";
import { SUBJECT_ERASED } from "../message/index.ts";
import { text } from "../options/index.ts";
import type { OwnedTransaction } from "../storage/index.ts";
import { subjectAuditEntry, checkActionReason, type ActionReason } from "./action-reason.ts";
import type { PrivacyEngine } from "./engine.ts";
import { findLastErasure, logErasure, computeProof, type Erasure } from "./erasure-log.ts";
import type { Eraser } from "./eraser.ts";
import { listRemains, type Remains } from "./remains.ts";
import type { ErasedSubject } from "./subject-erased.ts";
import { nothingScrubbed, sweepErasure, type ScrubResult } from "./sweep.ts";

export interface EraseOptions extends ActionReason {
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
  /**
   * "erased" · "already": nothing was left to destroy since the last time · "unknown": nothing was ever sealed for this
   * id, so look whether it is the right one · "dry run": nothing was done.
   */
  readonly outcome: "erased" | "already" | "unknown" | "dry run";
  /** Whether anything was ever sealed for this id. */
  readonly known: boolean;
  /** The keyed hash under which the person appears in the log. */
  readonly subject: string;
  /** The line in the log; null in a dry run of a person never erased. */
  readonly erasure: Erasure | null;
  readonly keysDestroyed: number;
  readonly sagasParked: readonly LiveSaga[];
  readonly scrubbed: ScrubResult;
  /** Whether transactions that were open are over, so that no key of theirs can appear any more. */
  readonly swept: boolean;
  readonly remains: readonly Remains[];
}

/**
 * Destroys the keys of a person in one transaction together with the line in the log and the event; then removes what
 * was never sealed. A process that dies in between has erased: the sweep goes on elsewhere.
 */
export async function erase(eraser: Eraser, given: string, options: EraseOptions): Promise<ErasureReport> {
  const { engine } = eraser;
  const subject = engine.index.subject(given);
  const by = checkActionReason(options);
  if (options.dryRun === true) return planErasure(engine, subject);
  const entry = subjectAuditEntry("privacy.erase", subject, by);
  const done = await engine.audit.runAudited(engine.database, entry, async (note) => {
    await engine.guard.check(engine.database);
    return eraser.transaction(async (tx, publish) => {
      const destroyed = await destroy(engine, tx, { subject, force: options.force === true, by }, publish);
      const { outcome, keysDestroyed, sagas } = destroyed;
      await note(tx, { after: { outcome, keysDestroyed, sagasParked: sagas.length } });
      return destroyed;
    });
  });
  engine.cache.forget(subject);
  if (done.isNew) eraser.announce(subject);
  const { swept, scrubbed } = await sweepErasure(eraser, done.erasure.id).catch(notSweptResult);
  const { outcome, erasure, keysDestroyed, sagas: sagasParked, known } = done;
  const remains = listRemains(engine);
  return { outcome, known, subject, erasure, keysDestroyed, sagasParked, scrubbed, swept, remains };
}

interface DestroyResult {
  readonly outcome: "erased" | "already" | "unknown";
  readonly known: boolean;
  readonly erasure: Erasure;
  readonly keysDestroyed: number;
  readonly sagas: readonly LiveSaga[];
  readonly isNew: boolean;
}

async function destroy(
  engine: PrivacyEngine,
  tx: OwnedTransaction,
  { subject, force, by }: { subject: string; force: boolean; by: Required<ActionReason> },
  publish: (told: ErasedSubject) => Promise<unknown>,
): Promise<DestroyResult> {
  const { sql } = engine;
  const { rows } = await tx.run<{ now: string }>(sql.lockSubject, [subject]);
  const erasedAt = rows[0]?.now ?? "";
  await assertNotHeld(engine, tx, subject);
  const sagas = await liveSagas(engine, tx, subject);
  if (sagas.length > 0 && !force) throw sagasRunning(sagas);
  if (sagas.length > 0) await tx.run(sql.parkSagas, [subject, SUBJECT_ERASED, by.actor]);
  const known = (await tx.run(sql.keysOf, [subject])).rows.length > 0;
  const destroyed = await tx.run<{ key_id: string }>(sql.destroyKeys, [subject, erasedAt]);
  const keyIds = destroyed.rows.map(({ key_id }) => key_id).sort();
  const found = { known, sagas, keysDestroyed: keyIds.length };
  const earlier = await findLastErasure(engine, tx, subject);
  if (keyIds.length === 0 && sagas.length === 0 && earlier !== undefined)
    return { ...found, outcome: known ? "already" : "unknown", erasure: earlier, isNew: false };
  // Of somebody never seen there is a line too: a transaction that is open may be about to write them.
  const proved = { subject, erasedAt, ...by, keyIds };
  const line = { ...proved, proof: computeProof(engine, proved) };
  const id = await logErasure(engine, tx, line);
  await publish({ subject, keyIds, erasedAt });
  return { ...found, outcome: known ? "erased" : "unknown", erasure: { id, ...line }, isNew: true };
}

// The keys are destroyed, whatever comes after: a worker goes on with the rest.
function notSweptResult(): { swept: boolean; scrubbed: ScrubResult } {
  return { swept: false, scrubbed: nothingScrubbed };
}

/** Ends a saga that was parked because its person was erased. False when it is none of these. */
export async function endErasedSaga(
  { database, sql }: PrivacyEngine,
  id: string,
  options: ActionReason,
): Promise<boolean> {
  const { reason, actor } = checkActionReason(options);
  // Its status has to be one of the known ones; the note says that nothing was undone.
  const note = `ended as it was, nothing was undone: ${reason}`;
  const params = [text("id", id), SUBJECT_ERASED, note, actor];
  return (await database.run(sql.endSaga, params)).rows.length > 0;
}

async function planErasure(engine: PrivacyEngine, subject: string): Promise<ErasureReport> {
  const { database, sql } = engine;
  await engine.guard.check(database);
  await assertNotHeld(engine, database, subject);
  const keys = await database.run<{ live: boolean }>(sql.keysOf, [subject]);
  return {
    outcome: "dry run",
    known: keys.rows.length > 0,
    subject,
    erasure: (await findLastErasure(engine, database, subject)) ?? null,
    keysDestroyed: keys.rows.filter(({ live }) => live).length,
    sagasParked: await liveSagas(engine, database, subject),
    scrubbed: nothingScrubbed,
    swept: false,
    remains: listRemains(engine),
  };
}

type RunQueries = Pick<OwnedTransaction, "run">;

async function liveSagas(
  { sql }: PrivacyEngine,
  tx: RunQueries,
  subject: string,
): Promise<readonly LiveSaga[]> {
  return (await tx.run<LiveSaga>(sql.liveSagas, [subject])).rows;
}

async function assertNotHeld({ sql }: PrivacyEngine, tx: RunQueries, subject: string): Promise<void> {
  const { rows } = await tx.run<{ held_at: string }>(sql.openHold, [subject]);
  if (rows[0] === undefined) return;
  throw new SagaboxError(
    "PRIVACY_SUBJECT_HELD",
    `The data of this person are held since ${rows[0].held_at} and were not erased. Release them first.`,
  );
}

function sagasRunning(sagas: readonly LiveSaga[]): SagaboxError {
  const list = sagas.slice(0, 20).map(({ id, type, status }) => `${type} ${id} (${status})`);
  return new SagaboxError(
    "PRIVACY_SUBJECT_BUSY",
    `${sagas.length} saga(s) about this person are still running: ${list.join(", ")}. ` +
      "Wait for them or cancel them; with `force` they are parked for a person to decide.",
  );
}
