import { AuditWriter } from "../../audit/index.ts";
import { forgetInbox, inboxRetentionMs, inboxStatements } from "../../inbox/index.ts";
import type { Duration } from "../../options/index.ts";
import { quoteSchema, type Database } from "../../storage/index.ts";
import { silentObserver } from "../../telemetry/index.ts";
import { consumerStatements } from "./statements.ts";

export interface CleanInboxOptions {
  /** How long handled messages are remembered, at least. */
  readonly keep: Duration | number;
  readonly actor: string;
  readonly reason?: string | undefined;
  readonly signal?: AbortSignal;
  readonly onProgress?: (count: number) => void;
}

export interface InboxPlan {
  /** How long they are kept in fact: longer than asked for while something could still bring one of them again. */
  readonly keepMs: number;
  /** How many are older, counted up to a million. */
  readonly due: number;
}

/** What `cleanInbox` would do. */
export async function planInboxCleaning(
  database: Database,
  schema: string,
  keep: CleanInboxOptions["keep"],
): Promise<InboxPlan> {
  const sql = consumerStatements(quoteSchema(schema));
  const [reach] = (await database.run<RetentionRow>(sql.reach, [quoteSchema(schema)])).rows;
  const keepMs = inboxRetentionMs({
    retention: keep,
    deadLetters: Math.ceil(reach?.dead_letter_ms ?? 0),
    archive: Math.ceil(reach?.archive_ms ?? 0),
  });
  const [old] = (await database.run<{ count: number }>(sql.due, [keepMs])).rows;
  return { keepMs, due: old?.count ?? 0 };
}

/** Forgets what was handled long ago, in small batches; never what the archive or a dead letter could bring again. */
export async function cleanInbox(
  database: Database,
  schema: string,
  { keep, actor, reason, signal, onProgress }: CleanInboxOptions,
): Promise<{ readonly keepMs: number; readonly forgotten: number; readonly finished: boolean }> {
  const { keepMs } = await planInboxCleaning(database, schema, keep);
  const sql = inboxStatements(quoteSchema(schema));
  const entry = {
    actor,
    reason: reason ?? `older than ${keep}`,
    action: "inbox.cleanup",
    target: { kind: "inbox" },
  };
  return new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const engine = { database, sql, observer: silentObserver };
    const forgotten = await forgetInbox(engine, {
      olderThanMs: keepMs,
      ...(signal === undefined ? {} : { signal }),
      ...(onProgress === undefined ? {} : { onProgress }),
    });
    await note(database, { after: { keepMs, forgotten } });
    return { keepMs, forgotten, finished: signal?.aborted !== true };
  });
}

interface RetentionRow {
  readonly archive_ms: number;
  readonly dead_letter_ms: number;
}
