export interface IdSource {
  (): string;
}

interface IdSourceParts {
  readonly wallMs: () => number;
  readonly randomBytes: RandomBytes;
}

const hex = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/**
 * Creates a source of UUIDs of version 7 that increase within the process. The 74 bits after the time start
 * at a random value in each millisecond and grow by random steps. If the clock stands still or jumps back,
 * the last time is kept.
 */
export function createIdSource({ wallMs, randomBytes }: IdSourceParts): IdSource {
  const pooled = poolRandomBytes(randomBytes);
  let lastMs = -1;
  let high = 0; // 12 + 14 bits
  let low = 0; // 48 bits, below what a double holds exactly

  function drawRandom(count: number): number {
    return pooled(count).reduce((value, byte) => value * 256 + byte, 0);
  }

  return () => {
    const nowMs = Math.floor(wallMs());
    if (nowMs > lastMs) {
      lastMs = nowMs;
      high = drawRandom(4) % 0x2000000; // the top bit is 0, which leaves room to count up
      low = drawRandom(6);
    } else {
      low += 1 + drawRandom(4);
      if (low >= 0x1000000000000) {
        low -= 0x1000000000000;
        high += 1;
      }
      if (high >= 0x4000000) {
        high = 0;
        lastMs += 1;
      }
    }
    return formatUuid(lastMs, high, low);
  };
}

function formatUuid(ms: number, high: number, low: number): string {
  const time = toHex(ms, 6);
  const versionAndHigh = toHex(0x7000 | (high >>> 14), 2);
  const variantAndRest = toHex(0x8000 | (high & 0x3fff), 2);
  return `${time.slice(0, 8)}-${time.slice(8)}-${versionAndHigh}-${variantAndRest}-${toHex(low, 6)}`;
}

function toHex(value: number, bytes: number): string {
  let text = "";
  for (let rest = value, i = 0; i < bytes; i++) {
    text = (hex[rest % 256] ?? "") + text;
    rest = Math.floor(rest / 256);
  }
  return text;
}

/**
 * Returns true for strings that every transport and index can carry: 1 to 255 printable characters, not
 * blank.
 */
export function isValidId(id: unknown): id is string {
  return typeof id === "string" && id.length >= 1 && id.length <= 255 && id.trim() !== "" && isPrintable(id);
}

const generatedIdPattern = /^([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/**
 * Returns when a generated id was created, in milliseconds since the epoch by its creator's clock; undefined
 * for other ids.
 */
export function parseIdTime(id: string): number | undefined {
  const parts = generatedIdPattern.exec(id);
  return parts === null ? undefined : Number.parseInt(`${parts[1]}${parts[2]}`, 16);
}

/** Returns true if an id has the form of a generated one: a UUID of version 7. */
export function isGeneratedId(id: string): boolean {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(id);
}

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

/**
 * Returns false if the text contains a lone surrogate. Node 20 has the method, but our TypeScript `lib`
 * target does not declare it.
 */
export function isWellFormed(text: string): boolean {
  return (text as string & { isWellFormed(): boolean }).isWellFormed();
}

/**
 * Returns false if the text contains control characters or lone surrogates, which indexes, logs or brokers
 * reject.
 */
export function isPrintable(text: string): boolean {
  return !/\p{Cc}/u.test(text) && isWellFormed(text);
}
