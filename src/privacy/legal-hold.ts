import { text } from "../options/index.ts";
import type { PrivacyEngine } from "./engine.ts";

export interface HoldOptions {
  readonly reason: string;
  /** Who does it. Default "unknown". */
  readonly actor?: string;
}

/** Keeps a person from being erased. False when they are held already. */
export function hold(engine: PrivacyEngine, subject: string, options: HoldOptions): Promise<boolean> {
  return change(engine, subject, options, "hold");
}

/** Ends the hold. False when there is none. */
export function release(engine: PrivacyEngine, subject: string, options: HoldOptions): Promise<boolean> {
  return change(engine, subject, options, "release");
}

async function change(
  { database, sql, index }: PrivacyEngine,
  given: string,
  { reason, actor = "unknown" }: HoldOptions,
  what: "hold" | "release",
): Promise<boolean> {
  const subject = index.subject(given);
  const params = [subject, text("reason", reason, { max: 1_000 }), text("actor", actor)];
  const tx = await database.begin();
  try {
    await tx.run(sql.lockSubject, [subject]);
    const { rowCount } = await tx.run(sql[what], params);
    await tx.commit();
    return rowCount > 0;
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}
