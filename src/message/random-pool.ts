export type RandomBytes = (size: number) => Uint8Array;

/**
 * Draws random bytes in blocks and returns slices of them, because each call to the system source is slow.
 */
export function poolRandomBytes(randomBytes: RandomBytes, blockBytes = 4_096): RandomBytes {
  let block: Uint8Array = new Uint8Array(0);
  let used = 0;
  return (size) => {
    if (size > blockBytes) return randomBytes(size);
    if (used + size > block.length) [block, used] = [randomBytes(blockBytes), 0];
    return block.subarray(used, (used += size));
  };
}
