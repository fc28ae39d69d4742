import { connect } from "amqplib";
import { windowed, type RawClient, type RawMessage } from "./raw-client.ts";

/** One quorum queue, reached through the default exchange; persistent messages, publisher confirms. */
export async function rawRabbitMQ(url: string, name: string): Promise<RawClient> {
  const connection = await connect(url);
  const channel = await connection.createConfirmChannel();
  await channel.assertQueue(name, { durable: true, arguments: { "x-queue-type": "quorum" } });
  const publishOne = ({ id, body }: RawMessage): Promise<void> =>
    new Promise((resolve, reject) => {
      const options = { persistent: true, messageId: id, contentType: "application/json" };
      channel.sendToQueue(name, body, options, (error: unknown) => {
        if (error instanceof Error) reject(error);
        else resolve();
      });
    });
  return {
    publishOne,
    publish: (messages, inFlight) => windowed(messages, inFlight, publishOne),
    async consume(count, prefetch, received) {
      const consuming = await connection.createChannel();
      await consuming.prefetch(prefetch);
      let left = count;
      await new Promise<void>((resolve, reject) => {
        const consumer = consuming.consume(name, (message) => {
          if (message === null) return;
          consuming.ack(message);
          received();
          if (--left === 0) resolve();
        });
        consumer.catch(reject);
      });
      await consuming.close();
    },
    close: () => connection.close(),
  };
}
