import type { Connection, produceV11, Writer } from "@platformatic/kafka";
import { platformatic } from "./client.ts";
import type { ProduceAnswer, ProduceBatch, ProduceRequest } from "./driver.ts";
import { encodeRecordBatch } from "./record-batch.ts";
import { groupByTopic } from "./wire-forms.ts";

type Answer = produceV11.ProduceResponse;

const PRODUCE = 0;
const VERSION = 11;
const ALL_REPLICAS = -1;

export interface EncodedBatch extends Pick<ProduceBatch, "topic" | "partition"> {
  readonly bytes: Buffer;
}

export function encodeBatches(request: ProduceRequest): EncodedBatch[] {
  return request.batches.map((batch) => ({
    topic: batch.topic,
    partition: batch.partition,
    bytes: encodeRecordBatch(batch, request),
  }));
}

/** Around the client's own writer: its request takes records only as objects of its own. */
export function sendProduce(connection: Connection, payload: () => Writer): Promise<Answer> {
  const { parseResponse } = platformatic.client.produceV11;
  return new Promise((resolve, reject) => {
    connection.send<Answer>(PRODUCE, VERSION, payload, parseResponse, true, true, (error, answer) => {
      if (answer === undefined) reject(error ?? new Error("the answer was empty"));
      else resolve(answer);
    });
  });
}

export function writeProduceRequest(timeoutMs: number, written: readonly EncodedBatch[]): Writer {
  return platformatic.client.Writer.create()
    .appendString(null) // no transaction
    .appendInt16(ALL_REPLICAS)
    .appendInt32(timeoutMs)
    .appendArray(
      groupByTopic(written, ({ topic }) => topic),
      (topics, [topic, batches]) => {
        topics.appendString(topic).appendArray(batches, (partitions, { partition, bytes }) => {
          partitions
            .appendInt32(partition)
            .appendUnsignedVarInt(bytes.length + 1)
            .append(bytes);
        });
      },
    )
    .appendTaggedFields();
}

export function toProduceAnswers(
  { responses }: Answer,
  written: readonly EncodedBatch[],
): readonly ProduceAnswer[] {
  return responses.flatMap(({ name, partitionResponses }) =>
    partitionResponses.map(({ index, errorCode }) => {
      const own = written.find(({ topic, partition }) => topic === name && partition === index);
      return { topic: name, partition: index, code: errorCode, bytes: own?.bytes.length ?? 0 };
    }),
  );
}
