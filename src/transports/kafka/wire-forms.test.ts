import { IS_CONTROL, IS_TRANSACTIONAL, type RecordsBatch } from "@platformatic/kafka";
import { expect, test } from "vitest";
import { readRecords } from "./wire-forms.ts";

interface BatchOptions {
  readonly first: number;
  readonly values?: readonly string[];
  readonly producer?: number;
  readonly attributes?: number;
}

function batch({ first, values = [], producer = -1, attributes = 0 }: BatchOptions): RecordsBatch {
  return {
    firstOffset: BigInt(first),
    lastOffsetDelta: Math.max(0, values.length - 1),
    producerId: BigInt(producer),
    attributes,
    length: 0,
    partitionLeaderEpoch: 0,
    magic: 2,
    crc: 0,
    firstTimestamp: 0n,
    maxTimestamp: 0n,
    producerEpoch: 0,
    firstSequence: 0,
    records: values.map((value, offsetDelta) => ({
      length: 0,
      attributes: 0,
      timestampDelta: 0n,
      offsetDelta,
      key: null,
      value: Buffer.from(value),
      headers: [],
    })),
  };
}

const read = (batches: RecordsBatch[], from: number, aborted: [producer: number, first: number][] = []) => {
  const abortedTransactions = aborted.map(([producer, first]) => ({
    producerId: BigInt(producer),
    firstOffset: BigInt(first),
  }));
  const { records, next } = readRecords({ records: batches, abortedTransactions }, BigInt(from));
  return { values: records.map(({ offset, value }) => `${offset}:${value.toString()}`), next };
};

test("records before the requested offset are skipped", () => {
  expect(read([batch({ first: 5, values: ["a", "b", "c"] })], 6)).toEqual({
    values: ["6:b", "7:c"],
    next: 8,
  });
});

test("the first record tells when it was sent; with the broker's times, when its batch was stored", () => {
  const [first, second] = batch({ first: 5, values: ["a", "b"] }).records;
  const timed = {
    ...batch({ first: 5, values: [] }),
    firstTimestamp: 1_000n,
    maxTimestamp: 9_000n,
    records: [first, { ...second, timestampDelta: 250n }] as RecordsBatch["records"],
  };
  const firstSentMs = (records: RecordsBatch[], from: bigint) =>
    readRecords({ records, abortedTransactions: [] }, from).firstSentMs;
  expect(firstSentMs([timed], 5n)).toBe(1_000);
  expect(firstSentMs([timed], 6n)).toBe(1_250);
  expect(firstSentMs([{ ...timed, attributes: 0x08 }], 6n)).toBe(9_000);
  expect(firstSentMs([], 6n)).toBeUndefined();
});

test("an answer without batches has no next offset", () => {
  expect(read([], 6)).toEqual({ values: [], next: undefined });
});

test("records of an aborted transaction are skipped; those of a committed one are not", () => {
  const transactional = IS_TRANSACTIONAL;
  const batches = [
    batch({ first: 0, values: ["gone"], producer: 1, attributes: transactional }),
    batch({ first: 1, values: ["kept"], producer: 2, attributes: transactional }),
    batch({ first: 2, values: [""], producer: 1, attributes: transactional | IS_CONTROL }),
    batch({ first: 3, values: ["later"], producer: 1, attributes: transactional }),
    batch({ first: 4, values: ["plain"] }),
  ];
  expect(read(batches, 0, [[1, 0]])).toEqual({ values: ["1:kept", "3:later", "4:plain"], next: 5 });
});
