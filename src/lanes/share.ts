/** Fixed for ever: rows carry their lane, so another number would need another table. */
export const LANES = 256;

/** How many of the lanes the member with this rank (from 0) should own when `members` share them. */
export function fairShare(members: number, rank: number): number {
  if (members <= 0 || rank < 0 || rank >= members) return 0;
  return Math.floor(LANES / members) + (rank < LANES % members ? 1 : 0);
}
