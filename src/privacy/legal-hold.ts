import type { PrivacyEngine } from "./engine.ts";
import { subjectAuditEntry, checkActionReason, type ActionReason } from "./action-reason.ts";

export type HoldOptions = ActionReason;

/** Keeps a person from being erased. False when they are held already. */
export function hold(engine: PrivacyEngine, subject: string, options: HoldOptions): Promise<boolean> {
  return change(engine, subject, options, "hold");
}

/** Ends the hold. False when there is none. */
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
