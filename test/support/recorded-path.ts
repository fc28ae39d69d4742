import type { RecordedEvent } from "../../src/flow/index.ts";

export interface Seen {
  readonly id: string;
  readonly type: string;
  readonly source: string;
  readonly after?: string | null;
  readonly key?: string | null;
  /** Milliseconds after the beginning. */
  readonly at: number;
}

/** Events as a watching consumer would have recorded them, the first at noon. */
export function recordedPath(...seen: readonly Seen[]): RecordedEvent[] {
  const noon = Date.UTC(2026, 0, 1, 12);
  return seen.map(({ id, type, source, after = null, key = "A-1", at }) => {
    const happenedAt = new Date(noon + at).toISOString();
    return {
      flow: "order",
      messageId: id,
      correlationId: "A-1",
      type,
      causationId: after,
      source,
      key,
      happenedAt,
      recordedAt: happenedAt,
    };
  });
}
