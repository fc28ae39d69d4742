import { Admin, Consumer, ProduceAcks, Producer } from "@platformatic/kafka";
import type { RawClient, RawMessage } from "./raw-client.ts";

/** As many as the product makes by default. */
const PARTITIONS = 12;
const COMMIT_MS = 100;

/** One topic; all replicas confirm, the producer is idempotent, offsets are committed ten times a second. */
export async function rawKafka(url: string, name: string): Promise<RawClient> {
  const common = { bootstrapBrokers: [url.replace(/^kafka:\/\//, "")], clientId: name };
  const admin = new Admin(common);
  await admin.createTopics({ topics: [name], partitions: PARTITIONS, replicas: 1 });
  await admin.close();
  const producer = new Producer<Buffer, Buffer, Buffer, Buffer>({ ...common, idempotent: true });
  const toRecord = ({ key, body }: RawMessage) => ({ topic: name, key: Buffer.from(key), value: body });
  return {
    // This client sends what one call holds in one request to each broker, so a call is what is in flight.
    async publish(messages, inFlight) {
      for (let from = 0; from < messages.length; from += inFlight)
        await producer.send({ messages: messages.slice(from, from + inFlight).map(toRecord) });
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
    close: () => producer.close(),
  };
}
