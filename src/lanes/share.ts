/** Fixed for ever: rows carry their lane, so another number would need another table. */
export const LANES = 256;

/** How many of the lanes the member with this rank (from 0) should own when `members` share them. */
export function fairShare(members: number, rank: number): number {
  if (members <= 0 || rank < 0 || rank >= members) return 0;
  return Math.floor(LANES / members) + (rank < LANES % members ? 1 : 0);
}

/**
 * All lanes, those that the member with this rank should own first, the farthest from them last. Where one process
 * joins another both then have the same lanes in every scope, and a key goes its whole way through one of them: when the other
 * dies, its keys wait and the rest flows, instead of all of them waiting at one step or another.
 */
export function preferredLanes(members: number, rank: number): number[] {
  const size = fairShare(members, rank);
  const first = Array.from({ length: Math.max(0, rank) }, (_, before) => fairShare(members, before)).reduce(
    (sum, share) => sum + share,
    0,
  );
  const distance = (lane: number): number => {
    const behind = (lane - first + LANES) % LANES;
    return behind < size ? 0 : Math.min(behind - size + 1, LANES - behind);
  };
  return Array.from({ length: LANES }, (_, lane) => lane).sort((a, b) => distance(a) - distance(b));
}
