import type { Content, OutgoingRecord } from "./driver.ts";

export interface RecordContents {
  readonly key: Content | undefined;
  readonly value: Content;
  /** Name, value, name, value. */
  readonly headers: readonly Content[];
  /** Headers appended to `headers`. An array that is passed again is encoded once and then copied. */
  readonly common?: readonly string[];
}

/** Strings up to this length are encoded here, which is faster than a call into Node. */
const MAX_SHORT_TEXT = 20;
/** Most bytes that an encoded number takes. */
const NUMBER_BYTES = 5;

/** Encoded header arrays, kept for as long as the array is in use. */
const encodedLists = new WeakMap<readonly string[], Buffer>();

/**
 * Encoded contents of records, one after another, in Kafka's format but without the fields that depend on the batch. A
 * message is encoded when it is published: its size is then known, and only its bytes are kept until it is confirmed.
 */
export class RecordBuffer {
  bytes: Buffer;
  /** Where the next record begins. To remove the last record, set this to where that record began. */
  end = 0;
  /** Start of the last record's key, if it has one. */
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

  /** Writes several contents, one after another. */
  writeList(contents: readonly Content[]): void {
    for (const content of contents) this.#writeContent(content);
  }

  /** Writes the length and the content. Returns where the content begins. */
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
      const character = text.charCodeAt(n);
      if (character > 0x7f) return this.#writeLong(text);
      bytes[begin + n] = character;
    }
    this.end = begin + text.length;
    return begin;
  }

  // A string usually has as many bytes as characters. If not, its length may need more bytes, and the content moves.
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

/** Encodes a single record in a buffer of its own. */
export function encodeRecord(contents: RecordContents, timestampMs: number): OutgoingRecord {
  const buffer = new RecordBuffer(256);
  buffer.write(contents);
  return { buffer, start: 0, end: buffer.end, timestampMs };
}

function encodeList(list: readonly string[]): Buffer {
  const known = encodedLists.get(list);
  if (known !== undefined) return known;
  const buffer = new RecordBuffer(256);
  buffer.writeList(list);
  const bytes = Buffer.from(buffer.bytes.subarray(0, buffer.end));
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
