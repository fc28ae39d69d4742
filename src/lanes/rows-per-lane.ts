/** Lanes with something in flight are not read, and a handful of batches is on its way or being read at once. */
const BATCHES = 8;
/** Each lane of a batch is locked and gets a receipt when it settles. */
const FEWEST = 16;

/**
 * How many rows of each lane a read takes, so that its limit is found in an eighth of the lanes. Messages lie as they
 * were written, whatever their lane: reads that take a little of many lanes go through a backlog front to back and find
 * the pages that the ones before them brought in, where much of few lanes is a page for each message.
 */
export const rowsPerLane = (lanes: number, limit: number): number => {
  const half = Math.max(1, Math.ceil(limit / 2));
  const even = Math.ceil(limit / Math.max(1, Math.floor(lanes / BATCHES)));
  return Math.min(half, Math.max(FEWEST, even));
};
