import { onTestFinished } from "vitest";
import type { LaneRow } from "../../src/lanes/index.ts";
import { laneSettings } from "../../src/lanes/options.ts";
import { LANES } from "../../src/lanes/statements.ts";
import { LaneOwnership } from "../../src/lanes/ownership.ts";
import { LaneReader } from "../../src/lanes/reader.ts";
import { systemClock, type Clock } from "../../src/runtime/index.ts";
import { relays, until } from "./relays.ts";

/** The clock of the machine, until it is set ahead, so that tests need not wait for time to pass. */
export class ClockAhead implements Clock {
  #aheadMs = 0;

  wallMs(): number {
    return systemClock.wallMs() + this.#aheadMs;
  }

  monotonicMs(): number {
    return systemClock.monotonicMs() + this.#aheadMs;
  }

  advance(ms: number): void {
    this.#aheadMs += ms;
  }
}

/** A reader that owns all lanes and reads only when the test asks. */
export async function laneReader(clock: Clock = systemClock) {
  const harness = await relays();
  const { database, observer } = harness;
  const ownership = new LaneOwnership({
    database,
    schema: "sagabox",
    scope: 0,
    scopeName: "outbox",
    worker: "w",
    settings: laneSettings({ lease: 3_600_000 }),
    observer,
  });
  const reader = new LaneReader({
    schema: "sagabox",
    table: "outbox",
    messages: true,
    ownership,
    ageingMs: 60_000,
    clock,
  });
  const session = await database.session("reader", { enable_hashjoin: "off", enable_mergejoin: "off" });
  onTestFinished(async () => {
    await ownership.stop();
    session.release();
  });
  await ownership.start();
  await until(() => ownership.size === LANES);
  const fetch = async (limit = 100, readers = 1): Promise<LaneRow[]> => {
    reader.sweep();
    return reader.fetch(session, limit, readers);
  };
  const ids = async (limit?: number): Promise<string[]> => (await fetch(limit)).map((row) => row.messageId);
  /** Deletes the rows as a settle would, and informs the reader. */
  const settle = async (rows: readonly LaneRow[]): Promise<void> => {
    const reads = reader.reads();
    const { rows: answer } = await harness.pool.query<{ xid: string }>(
      `with gone as (delete from sagabox.outbox where seq = any($1::bigint[])) select pg_current_xact_id()::text as xid`,
      [rows.map((row) => row.seq)],
    );
    reader.settle(rows, { value: answer[0]?.xid ?? "0", reads });
  };
  return { ...harness, ownership, reader, fetch, ids, settle };
}

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

/** Returns the identical row object for the same arguments. */
export function theRow(seq: number, change: Partial<LaneRow> = {}): LaneRow {
  const words = JSON.stringify([seq, change]);
  const row = known.get(words) ?? aRow(seq, change);
  known.set(words, row);
  return row;
}
