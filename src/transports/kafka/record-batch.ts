import { platformatic } from "./client.ts";
import type { Content, OutgoingRecord, ProduceBatch, ProduceRequest } from "./driver.ts";

/** Where things are in a batch of the second version; the records come behind. */
const LENGTH = 8;
const MAGIC = 16;
const CHECKSUM = 17;
const ATTRIBUTES = 21;
const LAST_OFFSET = 23;
const FIRST_TIME = 27;
const LAST_TIME = 35;
const PRODUCER = 43;
const PRODUCER_EPOCH = 51;
const SEQUENCE = 53;
const COUNT = 57;
const RECORDS = 61;

/** Longer texts are left to Node, whose call costs more than a few letters do. */
const SHORT = 64;
/** Lengths and the fields of a record that are none of its contents. */
const RECORD_FIELDS = 64;
const KEPT_BYTES = 1_048_576;

/** Room to write in. It is one and the same for all batches, since each is written without a pause. */
let room = Buffer.allocUnsafeSlow(65_536);

/**
 * A batch as the broker stores it. The client has a writer too, but one that makes several objects of each field: with
 * our headers that was most of what it cost to send a message.
 */
export function recordBatch(batch: ProduceBatch, { identity, compression }: ProduceRequest): Buffer {
  const { records, sequence } = batch;
  const firstMs = records[0]?.timestampMs ?? 0;
  let lastMs = firstMs;
  let end = RECORDS;
  for (const [n, record] of records.entries()) {
    lastMs = Math.max(lastMs, record.timestampMs);
    end = writeRecord(record, n, record.timestampMs - firstMs, end);
  }
  const algorithm = platformatic.client.compressionsAlgorithms[compression];
  const written = room.subarray(RECORDS, end);
  const body = compression === "none" ? written : algorithm.compressSync(written);
  const bytes = Buffer.allocUnsafe(RECORDS + body.length);
  bytes.set(body, RECORDS);
  bytes.fill(0, 0, ATTRIBUTES);
  bytes.writeInt32BE(bytes.length - LENGTH - 4, LENGTH);
  bytes[MAGIC] = 2;
  bytes.writeInt16BE(algorithm.bitmask, ATTRIBUTES);
  bytes.writeInt32BE(records.length - 1, LAST_OFFSET);
  bytes.writeBigInt64BE(BigInt(firstMs), FIRST_TIME);
  bytes.writeBigInt64BE(BigInt(lastMs), LAST_TIME);
  bytes.writeBigInt64BE(identity.id, PRODUCER);
  bytes.writeInt16BE(identity.epoch, PRODUCER_EPOCH);
  bytes.writeInt32BE(sequence, SEQUENCE);
  bytes.writeInt32BE(records.length, COUNT);
  bytes.writeUInt32BE(checksum(bytes.subarray(ATTRIBUTES)), CHECKSUM);
  if (room.length > KEPT_BYTES) room = Buffer.allocUnsafeSlow(65_536);
  return bytes;
}

// Bytes in a writer of its own are not copied before they are counted.
function checksum(bytes: Buffer): number {
  const { crc32c, Writer } = platformatic.client;
  return crc32c(Writer.create().append(bytes).dynamicBuffer);
}

// Its length stands before the record, so the record is written where it would begin behind the longest one.
function writeRecord(record: OutgoingRecord, offset: number, delayMs: number, start: number): number {
  const { key, value, headers } = record;
  let most = RECORD_FIELDS + mostBytes(key) + mostBytes(value);
  for (const part of headers) most += 5 + mostBytes(part);
  reserve(start + most);
  const lengthBytes = varintBytes(most);
  const begin = start + lengthBytes;
  let at = begin;
  room[at++] = 0;
  at = writeVarint(delayMs, at);
  at = writeVarint(offset, at);
  at = key === undefined ? writeVarint(-1, at) : writeContent(key, at);
  at = writeContent(value, at);
  at = writeVarint(headers.length / 2, at);
  for (const part of headers) at = writeContent(part, at);
  const length = at - begin;
  const tooFar = lengthBytes - varintBytes(length);
  if (tooFar > 0) room.copyWithin(begin - tooFar, begin, at);
  writeVarint(length, start);
  return at - tooFar;
}

function writeContent(content: Content, at: number): number {
  if (typeof content !== "string") {
    const begin = writeVarint(content.length, at);
    room.set(content, begin);
    return begin + content.length;
  }
  return content.length <= SHORT ? writeShort(content, at) : writeLong(content, at);
}

function writeShort(text: string, start: number): number {
  let at = writeVarint(text.length, start);
  for (let n = 0; n < text.length; n++) {
    const letter = text.charCodeAt(n);
    if (letter > 0x7f) return writeLong(text, start);
    room[at++] = letter;
  }
  return at;
}

// Nearly always there are as many bytes as letters; only where not, the text may have to move.
function writeLong(text: string, start: number): number {
  const begin = start + varintBytes(text.length);
  const bytes = room.write(text, begin, "utf8");
  const moved = start + varintBytes(bytes);
  if (moved !== begin) room.copyWithin(moved, begin, begin + bytes);
  writeVarint(bytes, start);
  return moved + bytes;
}

function writeVarint(value: number, start: number): number {
  let rest = value < 0 ? -2 * value - 1 : 2 * value;
  let at = start;
  while (rest > 0x7f) {
    room[at++] = (rest % 0x80) | 0x80;
    rest = Math.floor(rest / 0x80);
  }
  room[at++] = rest;
  return at;
}

function varintBytes(length: number): number {
  let bytes = 1;
  for (let rest = 2 * length; rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes += 1;
  return bytes;
}

function mostBytes(content: Content | undefined): number {
  if (content === undefined) return 0;
  return typeof content === "string" ? content.length * 3 : content.length;
}

function reserve(bytes: number): void {
  if (bytes <= room.length) return;
  const larger = Buffer.allocUnsafeSlow(Math.max(bytes, room.length * 2));
  larger.set(room);
  room = larger;
}
