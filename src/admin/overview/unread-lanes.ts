import { type Database, quoteSchema } from "../../storage/index.ts";
import { overviewStatements } from "./statements.ts";

/** A lane whose owner is alive but does not read it. */
export interface UnreadLane {
  readonly lane: number;
  readonly worker: string;
  /** Consumer of the waiting deliveries; null for the outbox. */
  readonly consumer: string | null;
  /** Seconds since the first row became due. */
  readonly waitingSeconds: number;
}

/** Finds at most 20 unread lanes, longest wait first. */
export async function findUnreadLanes(database: Database, schema: string): Promise<readonly UnreadLane[]> {
  const { rows } = await database.run<UnreadRow>(overviewStatements(quoteSchema(schema)).unread);
  return rows.map(({ lane, worker, consumer, waiting_seconds: seconds }) => ({
    lane,
    worker,
    consumer,
    waitingSeconds: Math.round(seconds),
  }));
}

/** Describes unread lanes, grouped by worker and consumer. Pure. */
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

/** Formats a duration in a suitable unit. */
export function ageText(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} d`;
}
