/**
 * Number of lanes. `laneFor` and `streamFor` map keys to lanes and streams; their results are stored in the
 * database, so the hash must never change. Two 32-bit hashes run over the UTF-8 bytes and are mixed at the
 * end.
 */
export const laneCount = 256;

/** Returns the lane of a key, 0 to 255. */
export function laneFor(key: string): number {
  hash(seedA, seedB, key);
  finish();
  return stateA & 255;
}

/**
 * Returns the stream of a key on a topic, a signed 64-bit integer in decimal. Messages of one stream keep
 * their order.
 */
export function streamFor(topic: string, key: string): string {
  hash(seedA, seedB, topic);
  absorb(0xff); // never part of UTF-8, so ("ab", "c") and ("a", "bc") differ
  hash(stateA, stateB, key);
  finish();
  return BigInt.asIntN(64, (BigInt(stateA >>> 0) << 32n) | BigInt(stateB >>> 0)).toString();
}

const seedA = 0x9e3779b9 | 0;
const seedB = 0x85ebca6b | 0;

// Module state instead of a returned pair, because this runs for every message. It is safe: nothing here
// awaits.
let stateA = 0;
let stateB = 0;

function absorb(byte: number): void {
  stateA = Math.imul(stateA ^ byte, 0x01000193);
  stateB = Math.imul((stateB ^ byte) + ((stateB << 13) | (stateB >>> 19)), 0xc2b2ae35);
}

function hash(startA: number, startB: number, text: string): void {
  stateA = startA;
  stateB = startB;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) absorb(unit);
    else i += absorbWide(text, i);
  }
}

/** Returns the number of additional code units consumed. */
function absorbWide(text: string, index: number): number {
  const written = text.codePointAt(index) ?? 0;
  const code = written >= 0xd800 && written <= 0xdfff ? 0xfffd : written;
  if (code < 0x800) absorb(0xc0 | (code >> 6));
  else if (code < 0x10000) {
    absorb(0xe0 | (code >> 12));
    absorb(0x80 | ((code >> 6) & 63));
  } else {
    absorb(0xf0 | (code >> 18));
    absorb(0x80 | ((code >> 12) & 63));
    absorb(0x80 | ((code >> 6) & 63));
  }
  absorb(0x80 | (code & 63));
  return code >= 0x10000 ? 1 : 0;
}

function finish(): void {
  stateA = scramble(stateA ^ stateB);
  stateB = scramble(stateB + stateA);
  stateA = scramble(stateA ^ (stateB >>> 7));
}

function scramble(value: number): number {
  let mixed = value ^ (value >>> 16);
  mixed = Math.imul(mixed, 0x7feb352d);
  mixed ^= mixed >>> 15;
  mixed = Math.imul(mixed, 0x846ca68b);
  return mixed ^ (mixed >>> 16);
}
