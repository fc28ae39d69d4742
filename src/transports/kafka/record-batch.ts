import { platformatic } from "./client.ts";
import type { OutgoingRecord, ProduceBatch, ProduceRequest } from "./driver.ts";
import { varintBytes, writeVarint } from "./record-buffer.ts";

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

/** The fields of a record before what it holds: its length, how it differs from the batch in time and place. */
const RECORD_FIELDS = 24;
const MAX_KEPT_BYTES = 1_048_576;

/** Room to write in. It is one and the same for all batches, since each is written without a pause. */
let scratch = Buffer.allocUnsafeSlow(65_536);

/**
 * A batch as the broker stores it. The client has a writer too, but one that makes several objects of each field: with
 * our headers that was most of what it cost to send a message.
 */
export function encodeRecordBatch(batch: ProduceBatch, { identity, compression }: ProduceRequest): Buffer {
  const { records, sequence } = batch;
  const firstMs = records[0]?.timestampMs ?? 0;
  let lastMs = firstMs;
  let end = RECORDS;
  for (const [n, record] of records.entries()) {
    lastMs = Math.max(lastMs, record.timestampMs);
    end = writeRecord(record, n, record.timestampMs - firstMs, end);
  }
  const algorithm = platformatic.client.compressionsAlgorithms[compression];
  const written = scratch.subarray(RECORDS, end);
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
  bytes.writeUInt32BE(computeChecksum(bytes.subarray(ATTRIBUTES)), CHECKSUM);
  if (scratch.length > MAX_KEPT_BYTES) scratch = Buffer.allocUnsafeSlow(65_536);
  return bytes;
}

// Bytes in a writer of its own are not copied before they are counted.
function computeChecksum(bytes: Buffer): number {
  const { crc32c, Writer } = platformatic.client;
  return crc32c(Writer.create().append(bytes).dynamicBuffer);
}

function writeRecord(record: OutgoingRecord, offset: number, delayMs: number, start: number): number {
  const contents = record.room.bytes.subarray(record.start, record.end);
  reserveScratch(start + RECORD_FIELDS + contents.length);
  const length = 1 + varintBytes(delayMs) + varintBytes(offset) + contents.length;
  let at = writeVarint(scratch, length, start);
  scratch[at++] = 0;
  at = writeVarint(scratch, delayMs, at);
  at = writeVarint(scratch, offset, at);
  scratch.set(contents, at);
  return at + contents.length;
}

function reserveScratch(bytes: number): void {
  if (bytes <= scratch.length) return;
  const larger = Buffer.allocUnsafeSlow(Math.max(bytes, scratch.length * 2));
  larger.set(scratch);
  scratch = larger;
}
