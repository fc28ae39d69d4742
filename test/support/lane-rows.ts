import type { LaneRow } from "../../src/lanes/index.ts";

/** A narrow row as the reader hands it out. */
export function aRow(seq: number, change: Partial<LaneRow> = {}): LaneRow {
  return {
    lane: 7,
    seq,
    stream: null,
    topic: "events.order.placed",
    type: "order.placed",
    messageId: `m-${seq}`,
    attempts: 0,
    maxAttempts: 10,
    waitMs: 0,
    leased: false,
    expired: false,
    writtenOn: "2026-11-15",
    ctid: `(0,${seq})`,
    origin: { atMs: 0, server: undefined },
    expiresAt: null,
    message: null,
    ...change,
  };
}

const known = new Map<string, LaneRow>();

/** The very same row for the same words: one that was handed out comes back as what it was. */
export function theRow(seq: number, change: Partial<LaneRow> = {}): LaneRow {
  const words = JSON.stringify([seq, change]);
  const row = known.get(words) ?? aRow(seq, change);
  known.set(words, row);
  return row;
}
