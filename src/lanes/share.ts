/** Fixed: rows store their lane, so another number would require rewriting the tables. */
export const LANES = 256;

/** Returns how many lanes the member with this rank (from 0) should own when `members` share them. */
export function fairShare(members: number, rank: number): number {
  if (members <= 0 || rank < 0 || rank >= members) return 0;
  return Math.floor(LANES / members) + (rank < LANES % members ? 1 : 0);
}

/**
 * Lists all lanes in the order in which the member with this rank should claim them: its own range first, then by
 * distance from it. Two workers then own the same lanes in every scope, so a key passes through one worker only. If
 * the other worker dies, only its keys wait.
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
