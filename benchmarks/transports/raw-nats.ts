import { AckPolicy, jetstream, jetstreamManager, type ConsumerMessages } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { windowed, type RawClient, type RawMessage } from "./raw-client.ts";

/** One stream on disk; each message with the id by which the server knows it again. */
export async function rawNATS(url: string, name: string): Promise<RawClient> {
  const connection = await connect({ servers: url });
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name, subjects: [name] });
  await manager.consumers.add(name, { durable_name: name, ack_policy: AckPolicy.Explicit });
  const js = jetstream(connection);
  const publishOne = async ({ id, body }: RawMessage): Promise<void> => {
    await js.publish(name, body, { msgID: id });
  };
  return {
    publishOne,
    publish: (messages, inFlight) => windowed(messages, inFlight, publishOne),
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
    close: () => connection.close(),
  };
}
