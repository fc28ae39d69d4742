import type { RecordsBatch } from "@platformatic/kafka";
import type { FetchedPartition, IncomingRecord, PartitionAnswer } from "./driver.ts";

/** Bits in the attributes of a record batch. */
const HAS_STORED_TIME = 0x08;
const IS_TRANSACTIONAL = 0x10;
const IS_CONTROL = 0x20;

/** Groups items by topic, in order of first appearance. */
export function groupByTopic<T>(items: readonly T[], topicOf: (item: T) => string): [string, T[]][] {
  const topics = new Map<string, T[]>();
  for (const item of items) {
    const topic = topicOf(item);
    const known = topics.get(topic);
    if (known === undefined) topics.set(topic, [item]);
    else known.push(item);
  }
  return [...topics];
}

interface TopicAnswers<P> {
  readonly name: string;
  readonly partitions: readonly P[];
}

export function flattenAnswers<P extends { partitionIndex: number; errorCode: number }, More extends object>(
  topics: readonly TopicAnswers<P>[],
  more: (partition: P) => More,
): (PartitionAnswer & More)[] {
  return topics.flatMap(({ name, partitions }) =>
    partitions.map((partition) => ({
      topic: name,
      partition: partition.partitionIndex,
      code: partition.errorCode,
      ...more(partition),
    })),
  );
}

interface FetchAnswer {
  readonly errorCode: number;
  readonly responses: readonly {
    readonly topicId: string;
    readonly partitions: readonly PartitionData[];
  }[];
}

interface PartitionData {
  readonly partitionIndex: number;
  readonly errorCode: number;
  readonly logStartOffset: bigint;
  readonly abortedTransactions: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[];
  readonly records?: RecordsBatch[] | undefined;
}

interface RequestedTopic {
  readonly topicId: string;
  readonly partitions: readonly { readonly partition: number; readonly fetchOffset: bigint }[];
}

export function toFetchedPartitions(
  answer: FetchAnswer,
  requested: readonly RequestedTopic[],
): FetchedPartition[] {
  const positions = new Map(
    requested.flatMap(({ topicId, partitions }) =>
      partitions.map(({ partition, fetchOffset }) => [`${topicId}/${partition}`, fetchOffset]),
    ),
  );
  return answer.responses.flatMap(({ topicId, partitions }) =>
    partitions.map((data) => {
      const from = positions.get(`${topicId}/${data.partitionIndex}`) ?? 0n;
      const { records, firstSentMs, next } = readRecords(data, from);
      return {
        topicId,
        partition: data.partitionIndex,
        code: data.errorCode === 0 ? answer.errorCode : data.errorCode,
        logStart: Number(data.logStartOffset),
        records,
        firstSentMs,
        next,
      };
    }),
  );
}

/** Returns the committed records from offset `from`. A batch may begin earlier, or belong to an aborted transaction. */
export function readRecords(
  data: Pick<PartitionData, "abortedTransactions" | "records">,
  from: bigint,
): Pick<FetchedPartition, "firstSentMs" | "next"> & { readonly records: IncomingRecord[] } {
  const records: IncomingRecord[] = [];
  let firstSentMs: number | undefined;
  let next: bigint | undefined;
  const toAbort = data.abortedTransactions.toSorted((a, b) => (a.firstOffset < b.firstOffset ? -1 : 1));
  const aborted = new Set<bigint>();
  for (const batch of data.records ?? []) {
    const last = batch.firstOffset + BigInt(batch.lastOffsetDelta);
    while (toAbort[0] !== undefined && toAbort[0].firstOffset <= last)
      aborted.add(toAbort.shift()?.producerId ?? -1n);
    next = last + 1n;
    if ((batch.attributes & IS_CONTROL) !== 0) {
      aborted.delete(batch.producerId);
      continue;
    }
    const skipped = (batch.attributes & IS_TRANSACTIONAL) !== 0 && aborted.has(batch.producerId);
    if (!skipped) takeRecords(batch, from, records);
    if (records[0] !== undefined) firstSentMs ??= readTimestampMs(batch, BigInt(records[0].offset));
  }
  return { records, firstSentMs, next: next === undefined ? undefined : Number(next > from ? next : from) };
}

function takeRecords(batch: RecordsBatch, from: bigint, into: IncomingRecord[]): void {
  for (const { offsetDelta, key, value, headers } of batch.records) {
    const offset = batch.firstOffset + BigInt(offsetDelta);
    if (offset < from) continue;
    into.push({
      offset: Number(offset),
      key,
      value: value ?? Buffer.alloc(0),
      headers: headers.map(([name, content]) => [name ?? Buffer.alloc(0), content ?? Buffer.alloc(0)]),
    });
  }
}

// With the broker's own times, all records of a batch have the time at which it was stored.
function readTimestampMs(batch: RecordsBatch, offset: bigint): number | undefined {
  const record = batch.records.find(({ offsetDelta }) => batch.firstOffset + BigInt(offsetDelta) === offset);
  if (record === undefined) return undefined;
  const isStoredTime = (batch.attributes & HAS_STORED_TIME) !== 0;
  return Number(isStoredTime ? batch.maxTimestamp : batch.firstTimestamp + record.timestampDelta);
}
