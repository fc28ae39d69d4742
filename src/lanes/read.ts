import { systemClock } from "../runtime/index.ts";
import { findOrigin, type Queryable } from "../storage/index.ts";
import {
  isBlocked,
  parseMoment,
  packedMessages,
  PackedRow,
  ROW_SEPARATOR,
  SEPARATOR,
  type LaneRow,
  type RawRow,
  type ReadOrigin,
  type ReadMoment,
} from "./lane-row.ts";
import type { LaneOwnership } from "./ownership.ts";

export const DEFAULT_PRIORITY = 5;

export interface ReadRow {
  readonly row: LaneRow;
  /** An earlier row of its stream has another priority and must be handled first. */
  readonly blocked: boolean;
  /** The priority of the row, raised by its age. */
  readonly rank: number;
}

/** The limits of one read. A read that runs alone also returns held and urgent rows. */
export interface ReadRequest {
  readonly limit: number;
  readonly readers: number;
  readonly isAlone: boolean;
}

/** The parsed result of one read statement. */
export interface Read {
  readonly moment: ReadMoment | undefined;
  readonly rows: readonly ReadRow[];
  /** Returns whether this worker still owns the lane under the claim that was valid when the read began. */
  readonly isOwned: (lane: number) => boolean;
}

/** The server and the claims under which a read was started. */
export interface ReadContext extends Pick<Read, "isOwned"> {
  readonly origin: ReadOrigin;
}

export function parseRead(raw: readonly RawRow[], { isOwned, origin }: ReadContext): Read {
  const messages = packedMessages(raw);
  const rows: ReadRow[] = [];
  for (const { rows: several, rank = DEFAULT_PRIORITY } of raw) {
    if (several === null) continue;
    for (const text of several.split(ROW_SEPARATOR)) {
      const fields = text.split(SEPARATOR);
      rows.push({ row: new PackedRow(fields, messages, origin), blocked: isBlocked(fields), rank });
    }
  }
  return { moment: parseMoment(raw), rows, isOwned };
}

/** Remembers the current claims of these lanes, so that rows of lanes lost during the read can be dropped. */
export function startRead(
  session: Queryable,
  lanes: readonly number[],
  ownership: LaneOwnership,
): ReadContext {
  const claims = new Map(lanes.map((lane) => [lane, ownership.claim(lane)]));
  return {
    origin: { atMs: systemClock.monotonicMs(), server: findOrigin(session)?.server },
    isOwned(lane) {
      const claim = ownership.claim(lane);
      return claim !== undefined && claim === claims.get(lane);
    },
  };
}
