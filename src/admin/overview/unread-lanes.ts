import { quoteSchema, type Database } from "../../storage/index.ts";
import { ageText } from "./age-text.ts";
import { overviewStatements } from "./statements.ts";

/** A lane whose owner lives and works, and does not read it. */
export interface UnreadLane {
  readonly lane: number;
  readonly worker: string;
  /** Whose deliveries wait in it. Null where messages wait to be sent. */
  readonly consumer: string | null;
  /** How long the first of them has been due. */
  readonly waitingSeconds: number;
}

/** At most 20 of them, the longest wait first. */
export async function findUnreadLanes(database: Database, schema: string): Promise<readonly UnreadLane[]> {
  const { rows } = await database.run<UnreadRow>(overviewStatements(quoteSchema(schema)).unread);
  return rows.map(({ lane, worker, consumer, waiting_seconds: seconds }) => ({
    lane,
    worker,
    consumer,
    waitingSeconds: Math.round(seconds),
  }));
}

/** Pure: one text for each worker and what it should do there. */
export function describeUnreadLanes(
  lanes: readonly UnreadLane[],
): { readonly seen: string; readonly worker: string }[] {
  const together = new Map<string, UnreadLane[]>();
  for (const one of lanes) {
    const name = JSON.stringify([one.worker, one.consumer]);
    together.set(name, [...(together.get(name) ?? []), one]);
  }
  return [...together.values()].map((same) => {
    const [{ worker, consumer }] = same as [UnreadLane];
    const whose = consumer === null ? "the outbox" : `consumer ${consumer}`;
    const oldest = ageText(Math.max(...same.map(({ waitingSeconds }) => waitingSeconds)));
    const numbers = same.map(({ lane }) => lane % 256).join(", ");
    return {
      seen: `lane ${numbers} of ${whose} at worker ${worker} has had a message due for ${oldest}`,
      worker,
    };
  });
}

interface UnreadRow {
  readonly lane: number;
  readonly worker: string;
  readonly consumer: string | null;
  readonly waiting_seconds: number;
}
