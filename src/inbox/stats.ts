import type { InboxEngine } from "./engine.ts";

export interface ConsumerStats {
  readonly consumer: string;
  readonly total: number;
  /** When the oldest kept message was handled. */
  readonly oldest: string;
  readonly lastHour: number;
  readonly lastDay: number;
}

/** How much each consumer has handled, as far back as the inbox is kept. Counts rows, so ask rarely. */
export async function inboxStats(
  { database, sql }: Pick<InboxEngine, "database" | "sql">,
  consumer?: string,
): Promise<readonly ConsumerStats[]> {
  const { rows } = await database.run<{
    consumer: string;
    total: number;
    oldest: string;
    last_hour: number;
    last_day: number;
  }>(sql.stats, [consumer ?? null]);
  return rows.map((row) => ({
    consumer: row.consumer,
    total: row.total,
    oldest: row.oldest,
    lastHour: row.last_hour,
    lastDay: row.last_day,
  }));
}
