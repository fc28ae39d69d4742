// Lanes: the way work is divided and kept in order. A lane is one of 256 slices of a table of narrow rows; exactly
// one member owns it at a time, under a lease, a fence and a token. The reader below walks the lanes it owns without
// locking rows, holds back the stream of a failing head, and never hands out a row twice. The outbox relay and the
// Postgres transport are the two users.
export { LANES, fairShare } from "./share.ts";
export { laneSettings, type LaneOptions, type LaneSettings } from "./options.ts";
export { LaneOwnership, type Claim, type LaneWorker } from "./ownership.ts";
export { isWorking } from "./ownership-statements.ts";
export { LaneReader } from "./reader.ts";
export type { LaneRow } from "./lane-row.ts";
export {
  claimParams,
  FENCED,
  freeRows,
  LEFT_OUT,
  leftRows,
  ownedLanes,
  pastLocks,
  readStatements,
  sameRow,
  sameStream,
  type ClaimedLane,
  type LaneTable,
} from "./statements.ts";
export { parseRead } from "./read.ts";
export { rowKeyParams, type BuildSettle, type SettleResult } from "./settle.ts";
export { LockTolerantSettling, type SettleVariants } from "./lock-tolerant-settling.ts";
export { WakeUp, encodeChangedHints, decodeHint, encodeHint, wakeUpChannel, type Hint } from "./wake-up.ts";
