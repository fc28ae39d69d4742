/**
 * Which lane and which stream a key belongs to. Rows in the database carry these numbers, so the function is frozen
 * for ever: two 32-bit hashes run over the UTF-8 bytes side by side and are mixed into each other at the end.
 */
export const laneCount = 256;

/** 0 to 255. */
export function laneFor(key: string): number {
  hash(seedA, seedB, key);
  finish();
  return stateA & 255;
}

/** The order of one key at one destination, as the decimal text of a signed 64-bit integer. */
export function streamFor(topic: string, key: string): string {
  hash(seedA, seedB, topic);
  absorb(0xff); // never part of UTF-8, so ("ab", "c") and ("a", "bc") differ
  hash(stateA, stateB, key);
  finish();
  return BigInt.asIntN(64, (BigInt(stateA >>> 0) << 32n) | BigInt(stateB >>> 0)).toString();
}

const seedA = 0x9e3779b9 | 0;
const seedB = 0x85ebca6b | 0;

// Module state instead of a returned pair: this runs for every message, and nothing here waits.
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

/** Returns how many further code units were used up. */
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
