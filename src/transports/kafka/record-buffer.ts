import type { Content, OutgoingRecord } from "./driver.ts";

export interface RecordContents {
  readonly key: Content | undefined;
  readonly value: Content;
  /** Name, value, name, value. */
  readonly headers: readonly Content[];
  /** Headers behind those: a list that comes again is written once and copied from then on. */
  readonly common?: readonly string[];
}

/** Longer texts are left to Node, whose call costs as much as so many letters. */
const MAX_SHORT_TEXT = 20;
/** The longest that a number takes. */
const NUMBER_BYTES = 5;

/** Lists of headers as bytes, as long as somebody has the list. */
const encodedLists = new WeakMap<readonly string[], Buffer>();

/**
 * What records hold, one behind the other, as the broker stores it; only their place in a batch is missing. It is
 * written when a message comes: then its size is known, and nothing else of it has to be kept until it is confirmed.
 */
export class RecordBuffer {
  bytes: Buffer;
  /** Where the next record begins. Who takes the last one back sets it to where that began. */
  end = 0;
  /** Where the key of the last record is, if it has one. */
  keyStart = 0;
  keyEnd = 0;

  constructor(expectedBytes: number) {
    this.bytes = Buffer.allocUnsafe(expectedBytes);
  }

  write({ key, value, headers, common = [] }: RecordContents): void {
    if (key === undefined) this.#writeNumber(-1);
    else this.keyStart = this.#writeContent(key);
    this.keyEnd = this.end;
    this.#writeContent(value);
    this.#writeNumber((headers.length + common.length) / 2);
    for (const part of headers) this.#writeContent(part);
    if (common.length > 0) this.#writeBytes(encodeList(common));
  }

  /** Several contents, one behind the other. */
  writeList(contents: readonly Content[]): void {
    for (const content of contents) this.#writeContent(content);
  }

  /** Returns where it begins behind its length. */
  #writeContent(content: Content): number {
    if (typeof content === "string")
      return content.length <= MAX_SHORT_TEXT ? this.#writeShort(content) : this.#writeLong(content);
    this.#writeNumber(content.length);
    this.#writeBytes(content);
    return this.end - content.length;
  }

  #writeShort(text: string): number {
    this.#reserve(NUMBER_BYTES + text.length);
    const { bytes } = this;
    const begin = writeVarint(bytes, text.length, this.end);
    for (let n = 0; n < text.length; n++) {
      const letter = text.charCodeAt(n);
      if (letter > 0x7f) return this.#writeLong(text);
      bytes[begin + n] = letter;
    }
    this.end = begin + text.length;
    return begin;
  }

  // Nearly always there are as many bytes as letters; only where not, the text may have to move.
  #writeLong(text: string): number {
    if (this.end + NUMBER_BYTES + text.length * 3 > this.bytes.length)
      this.#reserve(NUMBER_BYTES + Buffer.byteLength(text));
    const { bytes, end } = this;
    const guess = end + varintBytes(text.length);
    const length = bytes.write(text, guess, "utf8");
    const begin = length === text.length ? guess : end + varintBytes(length);
    if (begin !== guess) bytes.copyWithin(begin, guess, guess + length);
    writeVarint(bytes, length, end);
    this.end = begin + length;
    return begin;
  }

  #writeNumber(value: number): void {
    this.#reserve(NUMBER_BYTES);
    this.end = writeVarint(this.bytes, value, this.end);
  }

  #writeBytes(from: Buffer): void {
    this.#reserve(from.length);
    this.bytes.set(from, this.end);
    this.end += from.length;
  }

  #reserve(more: number): void {
    if (this.end + more <= this.bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.end + more, this.bytes.length * 2));
    this.bytes.copy(larger, 0, 0, this.end);
    this.bytes = larger;
  }
}

/** A single record in a room of its own. */
export function encodeRecord(contents: RecordContents, timestampMs: number): OutgoingRecord {
  const room = new RecordBuffer(256);
  room.write(contents);
  return { room, start: 0, end: room.end, timestampMs };
}

function encodeList(list: readonly string[]): Buffer {
  const known = encodedLists.get(list);
  if (known !== undefined) return known;
  const room = new RecordBuffer(256);
  room.writeList(list);
  const bytes = Buffer.from(room.bytes.subarray(0, room.end));
  encodedLists.set(list, bytes);
  return bytes;
}

export function writeVarint(bytes: Buffer, value: number, start: number): number {
  let rest = zigzag(value);
  let at = start;
  while (rest > 0x7f) {
    bytes[at++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  bytes[at++] = rest;
  return at;
}

export function varintBytes(value: number): number {
  let bytes = 1;
  for (let rest = zigzag(value); rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes += 1;
  return bytes;
}

function zigzag(value: number): number {
  return value < 0 ? -2 * value - 1 : 2 * value;
}
