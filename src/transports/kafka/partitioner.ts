const SEED = 0x9747b28c;
const FACTOR = 0x5bd1e995;

/** The hash that Kafka's own Java producer uses by default, as a signed 32-bit integer. */
export function murmur2(bytes: Uint8Array, start = 0, end = bytes.length): number {
  const rest = (end - start) & 3;
  const words = end - rest;
  let hash = SEED ^ (end - start);
  for (let at = start; at < words; at += 4) {
    const word =
      byteAt(bytes, at) |
      (byteAt(bytes, at + 1) << 8) |
      (byteAt(bytes, at + 2) << 16) |
      (byteAt(bytes, at + 3) << 24);
    hash = Math.imul(hash, FACTOR) ^ mix(word);
  }
  if (rest >= 3) hash ^= byteAt(bytes, words + 2) << 16;
  if (rest >= 2) hash ^= byteAt(bytes, words + 1) << 8;
  if (rest >= 1) hash = Math.imul(hash ^ byteAt(bytes, words), FACTOR);
  hash = Math.imul(hash ^ (hash >>> 13), FACTOR);
  return hash ^ (hash >>> 15);
}

/** Where the Java producer would put this key, so that producers in other languages agree with us. */
export function partitionFor(bytes: Uint8Array, partitions: number, start?: number, end?: number): number {
  return (murmur2(bytes, start, end) & 0x7fffffff) % partitions;
}

function mix(word: number): number {
  const mixed = Math.imul(word, FACTOR);
  return Math.imul(mixed ^ (mixed >>> 24), FACTOR);
}

function byteAt(bytes: Uint8Array, at: number): number {
  return bytes[at] ?? 0;
}
