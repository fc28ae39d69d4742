import { AuditWriter } from "../../audit/index.ts";
import type { Duration } from "../../options/index.ts";
import { History, outboxSettings } from "../../outbox/index.ts";
import type { Database } from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";

export interface ArchiveOptions {
  /** How long sent messages are kept. Give what the service has as `outbox.retention`. */
  readonly keep: Duration | number;
  readonly actor: string;
  readonly reason?: string | undefined;
  readonly signal?: AbortSignal;
  /** Hears of each partition that is done. */
  readonly onPartition?: (count: number) => void;
}

export interface ArchivePlan {
  readonly attach: readonly string[];
  readonly drop: readonly string[];
}

export interface ArchiveResult {
  readonly attached: readonly string[];
  readonly dropped: readonly string[];
  /** In use just now; the next round tries again. */
  readonly kept: readonly string[];
  /** Ids that callers chose, and that no message can meet again. */
  readonly forgottenIds: number;
  /** False when something was in use, or it was stopped. */
  readonly finished: boolean;
}

/** What `archiveOutbox` would do. */
export function planArchive(
  database: Database,
  schema: string,
  keep: ArchiveOptions["keep"],
): Promise<ArchivePlan> {
  const observer: Observer = { emit: () => undefined };
  return new History({ database, schema, retentionMs: readRetentionMs(keep), observer }).plan();
}

/** One round of the upkeep that a worker does every hour: partitions for the days ahead, and old days dropped. */
export async function archiveOutbox(
  database: Database,
  schema: string,
  { keep, actor, reason, signal, onPartition }: ArchiveOptions,
): Promise<ArchiveResult> {
  const done: Record<"attached" | "dropped" | "kept", string[]> = { attached: [], dropped: [], kept: [] };
  let forgottenIds = 0;
  const observer: Observer = {
    emit(name, fields) {
      if (name === "history.partition" && "partition" in fields && "action" in fields) {
        done[fields.action as keyof typeof done].push(String(fields.partition));
        onPartition?.(done.attached.length + done.dropped.length);
      }
      if (name === "history.cleaned" && "count" in fields) forgottenIds += Number(fields.count);
    },
  };
  const history = new History({ database, schema, retentionMs: readRetentionMs(keep), observer });
  const entry = {
    actor,
    reason: reason ?? `older than ${keep}`,
    action: "outbox.archive",
    target: { kind: "archive" },
  };
  return new AuditWriter(schema).runAudited(database, entry, async (note) => {
    const finished = await history.tidy(signal);
    const result = { ...done, forgottenIds, finished: finished && signal?.aborted !== true };
    await note(database, { after: { ...done, forgottenIds } });
    return result;
  });
}

function readRetentionMs(keep: ArchiveOptions["keep"]): number {
  return outboxSettings({ retention: keep }).retentionMs;
}
