import { SUBJECT_ERASED } from "../message/index.ts";
import { type FailedRound, PeriodicService } from "../runtime/index.ts";
import { type OwnedTransaction, type Statement, toArrayLiteral } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import { computeProof, type ErasedSubject, lockErasure, type UnsweptErasure } from "./erasure-log.ts";

/** Everything that an erasure needs besides its options. */
export interface Eraser {
  readonly engine: PrivacyEngine;
  /** Runs work in a transaction that can publish `SubjectErased`. */
  readonly transaction: <T>(
    work: (tx: OwnedTransaction, publish: (event: ErasedSubject) => Promise<unknown>) => Promise<T>,
  ) => Promise<T>;
  /** Notifies the other processes, which then drop the subject's keys from their caches. */
  readonly announce: (subject: string) => void;
}

/** The number of rows from which unencrypted text about the subject's messages was removed. */
export interface ScrubResult {
  readonly deadLetters: number;
  readonly results: number;
  /** Errors of messages that are being retried, and of requests that failed. */
  readonly errors: number;
}

interface SweepResult {
  readonly swept: boolean;
  readonly scrubbed: ScrubResult;
}

export const nothingScrubbed: ScrubResult = Object.freeze({ deadLetters: 0, results: 0, errors: 0 });

/**
 * Completes an erasure: destroys keys that were created by transactions open during the erasure, and removes texts about
 * the subject's messages. Idempotent; any process may run it.
 */
export async function sweepErasure(eraser: Eraser, id: string): Promise<SweepResult> {
  const { engine } = eraser;
  const found = await destroyLateKeys(eraser, id);
  if (found === undefined) return { swept: true, scrubbed: nothingScrubbed };
  const { over, toScrub, erasure } = found;
  // When all those transactions have ended, all keys are scrubbed once more: handlers may have stored errors meanwhile.
  const keyIds = over ? erasure.keyIds : toScrub;
  const scrubbed = await scrub(engine, keyIds);
  if (over || keyIds.length > 0) {
    const { deadLetters, results, errors } = scrubbed;
    const params = [id, toArrayLiteral(keyIds), deadLetters, results, errors, over];
    await engine.database.run(engine.sql.scrubbed, params);
  }
  return { swept: over, scrubbed };
}

/** Destroys late keys, parks the sagas encrypted with them, updates the log and publishes the event, in one transaction. */
async function destroyLateKeys(eraser: Eraser, id: string): Promise<UnsweptErasure | undefined> {
  const { engine, transaction, announce } = eraser;
  const { sql } = engine;
  let late: readonly string[] = [];
  const found = await transaction(async (tx, publish) => {
    const line = await lockErasure(engine, tx, id);
    if (line === undefined) return undefined;
    const { subject, actor, erasedAt } = line.erasure;
    late = (await tx.run<{ key_id: string }>(sql.destroyLate, [id])).rows.map(({ key_id }) => key_id).sort();
    const keyIds = [...new Set([...line.erasure.keyIds, ...late])].sort();
    const erasure = { ...line.erasure, keyIds };
    await tx.run(sql.parkSealed, [subject, SUBJECT_ERASED, actor, toArrayLiteral(keyIds)]);
    if (late.length === 0) return line;
    await tx.run(sql.addLate, [
      id,
      toArrayLiteral(keyIds),
      computeProof(engine, erasure),
      toArrayLiteral(late),
    ]);
    await publish({ subject, keyIds: late, erasedAt });
    return { ...line, erasure, toScrub: [...line.toScrub, ...late] };
  });
  if (found !== undefined && late.length > 0) {
    engine.cache.forget(found.erasure.subject);
    announce(found.erasure.subject);
  }
  return found;
}

/** Sweeps all erasures that are not complete. Resolves with the number that is still not complete. */
export async function sweepAll(eraser: Eraser): Promise<number> {
  const { database, sql } = eraser.engine;
  let left = 0;
  for (const { id } of (await database.run<{ id: string }>(sql.unswept)).rows) {
    if (!(await sweepErasure(eraser, id)).swept) left += 1;
  }
  return left;
}

/**
 * Removes unencrypted texts about messages that were encrypted with these keys: errors, results and failure replies. Call
 * it also in a service that received `SubjectErased` from another one.
 */
export async function scrub(
  { database, sql }: Pick<PrivacyEngine, "database" | "sql">,
  keyIds: readonly string[],
): Promise<ScrubResult> {
  if (keyIds.length === 0) return nothingScrubbed;
  const ids = toArrayLiteral(keyIds);
  const rows = async (of: Statement): Promise<number> => (await database.run(of, [ids])).rowCount;
  return {
    deadLetters: await rows(sql.scrubDeadLetters),
    results: await rows(sql.scrubResults),
    errors: (await rows(sql.scrubOutbox)) + (await rows(sql.scrubQueue)) + (await rows(sql.scrubReplies)),
  };
}

const IDLE_MS = 60_000;
const BUSY_MS = 5_000;

/** Continues unfinished erasures: the process that began one may have died, or a transaction was still open. */
export class Sweeper extends PeriodicService {
  readonly #eraser: Eraser;
  readonly #observer: Observer;

  constructor(eraser: Eraser, observer: Observer) {
    super({ everyMs: IDLE_MS });
    this.#eraser = eraser;
    this.#observer = observer;
  }

  protected override async runRound(): Promise<number> {
    return (await sweepAll(this.#eraser)) > 0 ? BUSY_MS : IDLE_MS;
  }

  protected override onFailure({ error, retryInMs }: FailedRound): void {
    const text = error instanceof Error ? error.message : "it failed";
    this.#observer.emit("storage.failed", { doing: "sweeping erasures", error: text, retryInMs });
  }
}
