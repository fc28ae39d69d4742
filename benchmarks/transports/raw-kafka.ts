import { Admin, Consumer, ProduceAcks, Producer } from "@platformatic/kafka";
import { createHeaders, type RawClient, type RawMessage, type RawWork } from "./raw-client.ts";

/** As many as the product makes by default. */
const PARTITIONS = 12;
const COMMIT_MS = 100;

/** One topic; all replicas confirm, the producer is idempotent, offsets are committed ten times a second. */
export async function rawKafka(url: string, name: string, work: RawWork): Promise<RawClient> {
  const common = { bootstrapBrokers: [url.replace(/^kafka:\/\//, "")], clientId: name };
  const admin = new Admin(common);
  await admin.createTopics({ topics: [name], partitions: PARTITIONS, replicas: 1 });
  await admin.close();
  const producer = new Producer<Buffer, Buffer, Buffer, Buffer>({
    ...common,
    idempotent: true,
    // The product's default.
    ...(work === "same" && { compression: "lz4" }),
  });
  const toRecord = ({ id, key, body }: RawMessage) => ({
    topic: name,
    key: Buffer.from(key),
    value: body,
    ...(work === "same" && { headers: encodeHeaders(createHeaders(id)) }),
  });
  return {
    // This client sends what one call holds in one request to each broker, so a call is what is in flight.
    prepare(messages, inFlight) {
      const records = messages.map(toRecord);
      return async () => {
        for (let from = 0; from < records.length; from += inFlight)
          await producer.send({ messages: records.slice(from, from + inFlight) });
      };
    },
    // Not idempotent: calls that run beside each other mix up the sequence numbers of this client.
    async publishOne(message) {
      await producer.send({ messages: [toRecord(message)], idempotent: false, acks: ProduceAcks.ALL });
    },
    async consume(count, prefetch, received) {
      const consumer = new Consumer({ ...common, groupId: name, highWaterMark: prefetch });
      const stream = await consumer.consume({
        topics: [name],
        mode: "committed",
        fallbackMode: "earliest",
        autocommit: COMMIT_MS,
      });
      let left = count;
      for await (const _ of stream) {
        received();
        if (--left === 0) break;
      }
      await new Promise<void>((resolve, reject) => {
        consumer.close(true, (error) => (error ? reject(error) : resolve()));
      });
    },
    // A log is as fast with many records as with few.
    empty: () => Promise.resolve(),
    close: () => producer.close(),
  };
}

function encodeHeaders(headers: Readonly<Record<string, string>>): Map<Buffer, Buffer> {
  return new Map(
    Object.entries(headers).map(([name, value]) => [Buffer.from(name), Buffer.from(value)] as const),
  );
}
