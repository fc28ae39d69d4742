import { NumericMap, produceV11, Reader, readRecordsBatch } from "@platformatic/kafka";
import { beforeAll, expect, test } from "vitest";
import { platformatic } from "./connections.ts";
import type { Content, OutgoingRecord, ProduceRequest } from "./driver.ts";
import { encodeBatches, encodeRecordBatch, writeProduceRequest } from "./wire-driver.ts";
import { encodeRecord, RecordBuffer, type RecordContents } from "./record-buffer.ts";

beforeAll(() => platformatic.load());

const NOW_MS = 1_790_000_000_123;

interface Sample extends RecordContents, OutgoingRecord {}

function record(value: Content, overrides: Partial<RecordContents & { timestampMs: number }> = {}): Sample {
  const { timestampMs = NOW_MS, ...rest } = overrides;
  const contents = { key: undefined, headers: [], ...rest, value };
  return { ...contents, ...encodeRecord(contents, timestampMs) };
}

function request(
  batches: Readonly<Record<string, readonly Sample[]>>,
  compression: ProduceRequest["compression"] = "none",
) {
  const named = Object.entries(batches).map(([name, records], n) => {
    const [topic = "", partition] = name.split("/");
    return { topic, partition: Number(partition), sequence: 0x7fff_fff0 - n, records };
  });
  return { identity: { id: 4_711n, epoch: 3 }, timeoutMs: 30_000, compression, batches: named };
}

const encodeRequest = (wanted: ProduceRequest): Buffer =>
  writeProduceRequest(wanted.timeoutMs, encodeBatches(wanted)).buffer;

/** Encodes the request with the client's own writer. */
function encodeWithClient({ identity, timeoutMs, compression, batches }: ReturnType<typeof request>): Buffer {
  const sequences = new NumericMap();
  for (const { topic, partition, sequence } of batches) sequences.set(`${topic}:${partition}`, sequence);
  const messages = batches.flatMap(({ topic, partition, records }) =>
    records.map(({ key, value, headers, common = [], timestampMs }) => ({
      topic,
      partition,
      value: Buffer.from(value),
      timestamp: BigInt(timestampMs),
      headers: new Map(pairs([...headers, ...common])),
      ...(key === undefined ? {} : { key: Buffer.from(key) }),
    })),
  );
  const options = { producerId: identity.id, producerEpoch: identity.epoch, compression, sequences };
  return produceV11.createRequest(-1, timeoutMs, messages, options).buffer;
}

function pairs(headers: readonly Content[]): [Buffer, Buffer][] {
  return headers.flatMap((name, n) => {
    const value = headers[n + 1];
    return n % 2 === 1 || value === undefined ? [] : [[Buffer.from(name), Buffer.from(value)]];
  });
}

const LENGTHS = [0, 1, 42, 43, 62, 63, 64, 65, 2_700, 2_731, 8_100, 8_191, 8_192, 40_000, 200_000];
const CHARACTERS = ["x", "ü", "€", "😀", "\ud800"];

test.each(CHARACTERS)("strings of %j are encoded to the client's bytes at every length", (character) => {
  const texts = LENGTHS.map((length) => character.repeat(length));
  const records = texts.flatMap((text) => [
    record(text),
    record(Buffer.from(text), { key: text }),
    record("{}", { key: Buffer.from(text), headers: ["empty", "", text, "x", "mixed", `x${text}`] }),
  ]);
  const wanted = request({ "orders/0": records });
  expect(encodeRequest(wanted).equals(encodeWithClient(wanted))).toBe(true);
});

test("batches of several topics, partitions and timestamps are encoded to the client's bytes", () => {
  const times = [0, 1, -1, 63, 64, -5_000, 2_000_000_000].map((ms) =>
    record("{}", { key: "k", timestampMs: NOW_MS + ms }),
  );
  const many = Array.from({ length: 300 }, (_, n) => record(`{"n":${n}}`, { key: `key-${n}` }));
  const wanted = request({ "orders/0": times, "orders/11": many, "payments/3": [record("")] });
  expect(encodeRequest(wanted).equals(encodeWithClient(wanted))).toBe(true);
});

test("shared headers and records in one buffer are encoded to the client's bytes", () => {
  const common = ["message_type", "event", "source_service", "Grüße", "long", "x".repeat(300)];
  const buffer = new RecordBuffer(1);
  const records = Array.from({ length: 40 }, (_, n) => {
    const contents = {
      key: n % 3 === 0 ? undefined : `key-${n}`,
      value: "ü".repeat(n * 7),
      headers: ["n", `${n}`],
      common,
    };
    const start = buffer.end;
    buffer.write(contents);
    const { end } = buffer;
    const isKeyed = contents.key !== undefined;
    if (isKeyed) expect(buffer.bytes.toString("utf8", buffer.keyStart, buffer.keyEnd)).toBe(contents.key);
    buffer.write(contents);
    buffer.end = end; // removes the second copy
    return { ...contents, buffer, start, end, timestampMs: NOW_MS };
  });
  const wanted = request({ "orders/0": records });
  expect(encodeRequest(wanted).equals(encodeWithClient(wanted))).toBe(true);
});

test.each(["none", "gzip", "snappy", "lz4"] as const)(
  "records compressed with %s are read back unchanged",
  (compression) => {
    const headers = ["message_id", "m-1", "x-tenant", "Grüße", "x-raw", Buffer.from([0, 255])];
    const records = Array.from({ length: 50 }, (_, n) => record(`{"n":${n}}`, { key: `key-${n}`, headers }));
    const wanted = request({ "orders/0": records }, compression);
    const [batch] = wanted.batches;
    if (batch === undefined) throw new Error("no batch");
    const read = readRecordsBatch(Reader.from(encodeRecordBatch(batch, wanted)));
    expect(read).toMatchObject({ producerId: 4_711n, producerEpoch: 3, firstSequence: batch.sequence });
    expect(read.records.map(({ value }) => value?.toString())).toEqual(records.map(({ value }) => value));
    expect(read.records.map(({ key }) => key?.toString())).toEqual(records.map(({ key }) => key));
    expect(read.records[49]?.headers.flat().map(String)).toEqual(headers.map(String));
  },
);
