import { SagaboxError } from "../errors/index.ts";
import { SUBJECT_ERASED } from "../message/index.ts";
import { text } from "../options/index.ts";
import { type OwnedTransaction, toArrayLiteral } from "../storage/index.ts";
import {
  type ActionReason,
  checkActionReason,
  keysAuditEntry,
  type OptionalActionReason,
  subjectAuditEntry,
} from "./options.ts";
import type { PrivacyEngine } from "./engine.ts";
import {
  computeProof,
  type ErasedSubject,
  type Erasure,
  findLastErasure,
  isProofValid,
  listErasures,
  logErasure,
} from "./erasure-log.ts";
import { type Eraser, nothingScrubbed, scrub, type ScrubResult, sweepErasure } from "./sweep.ts";

export interface EraseOptions extends ActionReason {
  /** Erases although sagas of the subject are running. They are parked, each with an incident. Default false. */
  readonly force?: boolean;
  /** Returns the report without erasing anything. Default false. */
  readonly dryRun?: boolean;
}

/** A saga that has not ended. */
export interface LiveSaga {
  readonly id: string;
  readonly type: string;
  readonly status: string;
}

/** What was destroyed, and where data remains for how long. */
export interface ErasureReport {
  /**
   * "erased"; "already": there was nothing new since the last erasure; "unknown": nothing was ever encrypted for this id,
   * so check the id; "dry run": nothing was done.
   */
  readonly outcome: "erased" | "already" | "unknown" | "dry run";
  /** Whether anything was ever encrypted for this id. */
  readonly known: boolean;
  /** The keyed hash of the subject in the log. */
  readonly subject: string;
  /** The log entry. Null in a dry run for a subject that was never erased. */
  readonly erasure: Erasure | null;
  readonly keysDestroyed: number;
  readonly sagasParked: readonly LiveSaga[];
  readonly scrubbed: ScrubResult;
  /** Whether all transactions that were open have ended, so that none of them can create another key. */
  readonly swept: boolean;
  readonly remains: readonly Remains[];
}

/**
 * Erases a data subject: destroys its keys, writes the log entry and publishes `SubjectErased` in one transaction, then
 * removes unencrypted texts. If the process dies in between, a worker completes the sweep. Throws PRIVACY_SUBJECT_HELD
 * under a legal hold, and PRIVACY_SUBJECT_BUSY if sagas are running and `force` is not set.
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
  publish: (event: ErasedSubject) => Promise<unknown>,
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
  // An unknown subject gets a log entry too, because an open transaction may be about to create its first key.
  const proved = { subject, erasedAt, ...by, keyIds };
  const line = { ...proved, proof: computeProof(engine, proved) };
  const id = await logErasure(engine, tx, line);
  await publish({ subject, keyIds, erasedAt });
  return { ...found, outcome: known ? "erased" : "unknown", erasure: { id, ...line }, isNew: true };
}

// The keys are destroyed even if the sweep fails. A worker completes it.
function notSweptResult(): { swept: boolean; scrubbed: ScrubResult } {
  return { swept: false, scrubbed: nothingScrubbed };
}

/** Ends a saga that was parked by an erasure. Resolves with false if the saga was not. */
export async function endErasedSaga(
  { database, sql }: PrivacyEngine,
  id: string,
  options: ActionReason,
): Promise<boolean> {
  const { reason, actor } = checkActionReason(options);
  // The status must be one of the defined ones. The note says that nothing was undone.
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
    `This data subject is under a legal hold since ${rows[0].held_at} and was not erased. Release the hold first.`,
  );
}

function sagasRunning(sagas: readonly LiveSaga[]): SagaboxError {
  const list = sagas.slice(0, 20).map(({ id, type, status }) => `${type} ${id} (${status})`);
  return new SagaboxError(
    "PRIVACY_SUBJECT_BUSY",
    `${sagas.length} saga(s) about this data subject are still running: ${list.join(", ")}. ` +
      "Wait for them or cancel them. With `force` they are parked, and an operator has to decide.",
  );
}

/** Data that an erasure does not remove at once, and when it disappears. */
export interface Remains {
  readonly where: string;
  readonly what: string;
  readonly until: string;
}

/** Lists what the destruction of a key does not remove at once. Each erasure report contains it. */
export function listRemains({ cacheTtlMs }: Pick<PrivacyEngine, "cacheTtlMs">): readonly Remains[] {
  return [
    {
      where: "memory of other processes",
      what: "the unwrapped key, if it was in use",
      until: `${cacheTtlMs / 1_000} s from now at the latest`,
    },
    {
      where: "the table of keys on disk and in the write-ahead log",
      what: "the old row with the wrapped key, useless without the key that wrapped it",
      until: "vacuum has passed and the log was recycled",
    },
    {
      where: "backups and standbys of the table of keys",
      what: "the wrapped key; after a restore the erasure log must be reapplied",
      until: "the backup is deleted",
    },
    {
      where: "brokers, archives, blobs, dead letters and their backups",
      what: "ciphertext that cannot be decrypted, and data that was never encrypted: keys, headers, other fields",
      until: "their own retention ends",
    },
    {
      where: "transactions that had read data of the subject and not written yet",
      what: "messages they publish after the erasure, encrypted with a new key, as for a new subject",
      until: "the subject is erased once more; a second erasure a little later removes them",
    },
    {
      where: "messages and sagas written before their contract declared personal fields",
      what: "all their data, unencrypted",
      until: "their own retention ends",
    },
    {
      where: "replies to commands",
      what: "fields not listed in `personal.reply`, and failure reasons, unencrypted, in the archive and at brokers",
      until: "their own retention ends",
    },
  ];
}

export interface ReapplyResult {
  readonly erasures: number;
  /** Keys that a restored backup had brought back. */
  readonly keysDestroyed: number;
  /** Log entries with an invalid proof. They were ignored. */
  readonly refused: number;
}

type Erasures = AsyncIterable<Erasure> | Iterable<Erasure>;

const BATCH = 500;

/**
 * Destroys keys that a restored backup brought back. Default: the erasure log in the database. For a backup that is older
 * than the log entries, pass a copy of the log that was stored elsewhere.
 */
export function reapply(
  engine: PrivacyEngine,
  list: Erasures = listErasures(engine),
  by: OptionalActionReason = {},
): Promise<ReapplyResult> {
  const { audit, database } = engine;
  return audit.runAudited(database, keysAuditEntry("privacy.reapply", by), async (note) => {
    await engine.guard.check(database);
    const result = await reapplyEach(engine, list);
    await note(database, { after: { ...result } });
    return result;
  });
}

async function reapplyEach(engine: PrivacyEngine, list: Erasures): Promise<ReapplyResult> {
  const { database, sql } = engine;
  const destroyed: string[] = [];
  const total = { erasures: 0, keysDestroyed: 0, refused: 0 };
  for await (const erasure of list) {
    if (!isProofValid(engine, erasure)) {
      total.refused += 1;
      continue;
    }
    const { subject, erasedAt, reason, actor, keyIds, proof } = erasure;
    const { rows } = await database.run(sql.reapply, [subject, erasedAt, toArrayLiteral(keyIds)]);
    await database.run(sql.relog, [subject, erasedAt, reason, actor, toArrayLiteral(keyIds), proof]);
    engine.cache.forget(subject);
    total.erasures += 1;
    total.keysDestroyed += rows.length;
    destroyed.push(...keyIds);
    if (destroyed.length >= BATCH) await scrub(engine, destroyed.splice(0));
  }
  // The restored rows contain texts that were scrubbed before the restore.
  await scrub(engine, destroyed);
  return total;
}

export type HoldOptions = ActionReason;

/** Starts a legal hold, which prevents the erasure of the subject. Resolves with false if there is one. */
export function hold(engine: PrivacyEngine, subject: string, options: HoldOptions): Promise<boolean> {
  return change(engine, subject, options, "hold");
}

/** Ends a legal hold. Resolves with false if no hold exists. */
export function release(engine: PrivacyEngine, subject: string, options: HoldOptions): Promise<boolean> {
  return change(engine, subject, options, "release");
}

async function change(
  { database, sql, index, guard, audit }: PrivacyEngine,
  given: string,
  options: HoldOptions,
  what: "hold" | "release",
): Promise<boolean> {
  const subject = index.subject(given);
  const by = checkActionReason(options);
  return audit.runAudited(database, subjectAuditEntry(`privacy.${what}`, subject, by), async (note) => {
    await guard.check(database);
    const tx = await database.begin();
    try {
      await tx.run(sql.lockSubject, [subject]);
      const { rowCount } = await tx.run(sql[what], [subject, by.reason, by.actor]);
      await note(tx, { after: { changed: rowCount > 0 } });
      await tx.commit();
      return rowCount > 0;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  });
}
