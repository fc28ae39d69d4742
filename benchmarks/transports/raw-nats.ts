import { AckPolicy, jetstream, jetstreamManager, type ConsumerMessages } from "@nats-io/jetstream";
import { connect, headers as natsHeaders } from "@nats-io/transport-node";
import { partitionFor } from "../../src/transports/nats/topology.ts";
import { createHeaders, runWindowed, type RawClient, type RawMessage, type RawWork } from "./raw-client.ts";

const PARTITIONS = 8;

/** One stream on disk; each message with the id by which the server knows it again. */
export async function rawNATS(url: string, name: string, work: RawWork): Promise<RawClient> {
  const connection = await connect({ servers: url });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name, subjects: [work === "same" ? `${name}.*` : name] });
  await manager.consumers.add(name, { durable_name: name, ack_policy: AckPolicy.Explicit });
  const js = jetstream(connection);
  const encodeMessage = ({ id, key, body }: RawMessage) =>
    work === "bare"
      ? { subject: name, body, options: { msgID: id } }
      : {
          subject: `${name}.${partitionFor({ id, key }, PARTITIONS)}`,
          body,
          options: { msgID: id, headers: createNatsHeaders(id), expect: { streamName: name } },
        };
  const send = async ({ subject, body, options }: ReturnType<typeof encodeMessage>): Promise<void> => {
    await js.publish(subject, body, options);
  };
  return {
    prepare(messages, inFlight) {
      const parcels = messages.map(encodeMessage);
      return () => runWindowed(parcels, inFlight, send);
    },
    publishOne: (message) => send(encodeMessage(message)),
    async consume(count, prefetch, received) {
      const consumer = await js.consumers.get(name, name);
      let left = count;
      let messages: ConsumerMessages | undefined;
      await new Promise<void>((resolve, reject) => {
        const consuming = consumer.consume({
          max_messages: prefetch,
          callback: (message) => {
            message.ack();
            received();
            if (--left === 0) resolve();
          },
        });
        consuming.then((opened) => (messages = opened), reject);
      });
      await messages?.close();
      await connection.flush();
    },
    async empty() {
      await manager.streams.purge(name);
    },
    close: () => connection.close(),
  };
}

function createNatsHeaders(id: string) {
  const headers = natsHeaders();
  for (const [name, value] of Object.entries(createHeaders(id))) headers.set(name, value);
  return headers;
}
