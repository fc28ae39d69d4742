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
  /** An earlier row of its stream has another priority and goes first. */
  readonly blocked: boolean;
  /** Its priority, raised by its age. */
  readonly rank: number;
}

/** What one read may take; one that is alone looks at what waits or is urgent as well. */
export interface ReadRequest {
  readonly limit: number;
  readonly readers: number;
  readonly isAlone: boolean;
}

/** One answer of the server, taken apart. */
export interface Read {
  readonly moment: ReadMoment | undefined;
  readonly rows: readonly ReadRow[];
  /** Whether the lane is, at the moment of asking, still ours under the claim it was read with. */
  readonly still: (lane: number) => boolean;
}

/** Where a read was asked for, and under which claims. */
export interface ReadContext extends Pick<Read, "still"> {
  readonly origin: ReadOrigin;
}

export function parseRead(raw: readonly RawRow[], { still, origin }: ReadContext): Read {
  const messages = packedMessages(raw);
  const rows: ReadRow[] = [];
  for (const { rows: several, rank = DEFAULT_PRIORITY } of raw) {
    if (several === null) continue;
    for (const text of several.split(ROW_SEPARATOR)) {
      const fields = text.split(SEPARATOR);
      rows.push({ row: new PackedRow(fields, messages, origin), blocked: isBlocked(fields), rank });
    }
  }
  return { moment: parseMoment(raw), rows, still };
}

/** The claims these lanes are read under from now on, and whether each is good at the moment of asking. */
export function startRead(
  session: Queryable,
  lanes: readonly number[],
  ownership: LaneOwnership,
): ReadContext {
  const claims = new Map(lanes.map((lane) => [lane, ownership.claim(lane)]));
  return {
    origin: { atMs: systemClock.monotonicMs(), server: findOrigin(session)?.server },
    still(lane) {
      const claim = ownership.claim(lane);
      return claim !== undefined && claim === claims.get(lane);
    },
  };
}
