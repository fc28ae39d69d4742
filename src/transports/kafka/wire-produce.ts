import type { Connection, produceV11, Writer } from "@platformatic/kafka";
import { platformatic } from "./client.ts";
import type { ProduceRequest } from "./driver.ts";
import { recordBatch } from "./record-batch.ts";
import { byTopic } from "./wire-forms.ts";

type Answer = produceV11.ProduceResponse;

const PRODUCE = 0;
const VERSION = 11;
const ALL_REPLICAS = -1;

/** Batches in one request, around the client's own writer: that one takes records only as objects of its own. */
export function askProduce(connection: Connection, request: ProduceRequest): Promise<Answer> {
  const { parseResponse } = platformatic.client.produceV11;
  return new Promise((resolve, reject) => {
    connection.send<Answer>(
      PRODUCE,
      VERSION,
      () => produceRequest(request),
      parseResponse,
      true,
      true,
      (error, answer) => {
        if (answer === undefined) reject(error ?? new Error("the answer was empty"));
        else resolve(answer);
      },
    );
  });
}

export function produceRequest(request: ProduceRequest): Writer {
  const { timeoutMs, batches } = request;
  return platformatic.client.Writer.create()
    .appendString(null) // no transaction
    .appendInt16(ALL_REPLICAS)
    .appendInt32(timeoutMs)
    .appendArray(
      byTopic(batches, ({ topic }) => topic),
      (topics, [topic, ofTopic]) => {
        topics.appendString(topic).appendArray(ofTopic, (partitions, batch) => {
          const bytes = recordBatch(batch, request);
          partitions
            .appendInt32(batch.partition)
            .appendUnsignedVarInt(bytes.length + 1)
            .append(bytes);
        });
      },
    )
    .appendTaggedFields();
}
