export type RandomBytes = (size: number) => Uint8Array;

/** Draws random bytes in blocks and hands them out in slices: each draw from the system has a price of its own. */
export function poolRandomBytes(randomBytes: RandomBytes, blockBytes = 4_096): RandomBytes {
  let block: Uint8Array = new Uint8Array(0);
  let used = 0;
  return (size) => {
    if (size > blockBytes) return randomBytes(size);
    if (used + size > block.length) [block, used] = [randomBytes(blockBytes), 0];
    return block.subarray(used, (used += size));
  };
}
