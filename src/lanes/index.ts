// Lanes divide the rows of `outbox` and `queue` among workers and keep them in order. A lane is one of 256 slices
// of such a table. One worker owns a lane at a time, under a lease, a fence and a token. The reader scans the lanes
// of its worker without row locks, holds back a stream whose first row failed, and never returns a row twice. The
// outbox relay and the PostgreSQL transport use it.
export { LANES, fairShare } from "./statements.ts";
export { laneSettings, type LaneOptions, type LaneSettings } from "./options.ts";
export { LaneOwnership, type Claim, type GuestView, type LaneWorker } from "./ownership.ts";
export { dueStatement, isWorking } from "./statements.ts";
export { LaneReader } from "./reader.ts";
export { Budget } from "./budget.ts";
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
  sampleSql,
  type ClaimedLane,
  type LaneTable,
} from "./statements.ts";
export { parseRead } from "./lane-row.ts";
export { estimateRows, type Sample } from "./sample.ts";
export { rowKeyParams, type BuildSettle, type SettleResult } from "./settle.ts";
export { LockTolerantSettling, type SettleVariants } from "./settle.ts";
export { WakeUp, encodeChangedHints, decodeHint, encodeHint, wakeUpChannel, type Hint } from "./wake-up.ts";
