import { connect, type ChannelModel, type ConfirmChannel, type Options } from "amqplib";
import { rabbitmq } from "../../src/transports/rabbitmq/index.ts";
import { groupNames, laneKey } from "../../src/transports/rabbitmq/topology.ts";
import { orderMessage } from "../product/order-message.ts";
import { createSubscription } from "./product.ts";
import { createHeaders, runWindowed, type RawClient, type RawMessage, type RawWork } from "./raw-client.ts";

const PARTITIONS = 8;

interface EncodedMessage {
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly options: Options.Publish;
}

interface RawPublisher {
  readonly queues: readonly string[];
  readonly parcelOf: (message: RawMessage) => EncodedMessage;
}

/** Quorum queues, persistent messages, publisher confirms. */
export async function rawRabbitMQ(url: string, name: string, work: RawWork): Promise<RawClient> {
  const connection = await connect(url);
  const channel = await connection.createConfirmChannel();
  const { queues, parcelOf } = await (work === "same"
    ? comparablePublisher(url, name)
    : barePublisher(channel, name));
  const send = ({ exchange, routingKey, body, options }: EncodedMessage): Promise<void> =>
    new Promise((resolve, reject) => {
      channel.publish(exchange, routingKey, body, options, (error: unknown) => {
        if (error instanceof Error) reject(error);
        else resolve();
      });
    });
  return {
    prepare(messages, inFlight) {
      const parcels = messages.map(parcelOf);
      return () => runWindowed(parcels, inFlight, send);
    },
    publishOne: (message) => send(parcelOf(message)),
    consume: (count, prefetch, received) => consume(connection, queues, { count, prefetch }, received),
    async empty() {
      for (const queue of queues) await channel.purgeQueue(queue);
    },
    close: () => connection.close(),
  };
}

/** One queue, reached through the default exchange. */
async function barePublisher(channel: ConfirmChannel, name: string): Promise<RawPublisher> {
  await channel.assertQueue(name, { durable: true, arguments: { "x-queue-type": "quorum" } });
  const encodeMessage = ({ id, body }: RawMessage): EncodedMessage => {
    const options = { persistent: true, messageId: id, contentType: "application/json" };
    return { exchange: "", routingKey: name, body, options };
  };
  return { queues: [name], parcelOf: encodeMessage };
}

/** The exchanges and queues that the product declares for a group, under another prefix. */
async function comparablePublisher(url: string, name: string): Promise<RawPublisher> {
  const declaring = rabbitmq({ url, prefix: name, partitions: PARTITIONS });
  await declaring.open();
  const subscription = createSubscription(1);
  const declared = await declaring.subscribe(subscription, () => undefined);
  await declared.close();
  await declaring.close();
  const { type, source } = orderMessage(0);
  const encodeMessage = ({ id, key, body }: RawMessage): EncodedMessage => {
    const options = {
      headers: createHeaders(id),
      messageId: id,
      correlationId: id,
      type,
      appId: source,
      contentType: "application/json",
      priority: 5,
      persistent: true,
      mandatory: true,
      BCC: [laneKey({ id, key })],
    };
    return { exchange: `${name}.event.order`, routingKey: `${source}.${type}.info`, body, options };
  };
  return { queues: groupNames(name, subscription, PARTITIONS).queues, parcelOf: encodeMessage };
}

/** A place for each of the queues, all on one channel. */
async function consume(
  connection: ChannelModel,
  queues: readonly string[],
  { count, prefetch }: { readonly count: number; readonly prefetch: number },
  received: () => void,
): Promise<void> {
  const channel = await connection.createChannel();
  await channel.prefetch(Math.ceil(prefetch / queues.length));
  let left = count;
  await new Promise<void>((resolve, reject) => {
    for (const queue of queues) {
      const consumer = channel.consume(queue, (message) => {
        if (message === null) return;
        channel.ack(message);
        received();
        if (--left === 0) resolve();
      });
      consumer.catch(reject);
    }
  });
  await channel.close();
}
