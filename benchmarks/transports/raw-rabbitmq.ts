import { connect, type ChannelModel, type ConfirmChannel, type Options } from "amqplib";
import { rabbitmq } from "../../src/transports/rabbitmq/index.ts";
import { laneKey } from "../../src/transports/rabbitmq/names.ts";
import { groupNames } from "../../src/transports/rabbitmq/topology.ts";
import { orderMessage } from "../product/order-message.ts";
import { subscriptionOf } from "./product.ts";
import { headersOf, windowed, type RawClient, type RawMessage, type RawWork } from "./raw-client.ts";

const PARTITIONS = 8;

interface Parcel {
  readonly exchange: string;
  readonly routingKey: string;
  readonly body: Buffer;
  readonly options: Options.Publish;
}

interface Way {
  readonly queues: readonly string[];
  readonly parcelOf: (message: RawMessage) => Parcel;
}

/** Quorum queues, persistent messages, publisher confirms. */
export async function rawRabbitMQ(url: string, name: string, work: RawWork): Promise<RawClient> {
  const connection = await connect(url);
  const channel = await connection.createConfirmChannel();
  const { queues, parcelOf } = await (work === "same" ? sameWay(url, name) : bareWay(channel, name));
  const send = ({ exchange, routingKey, body, options }: Parcel): Promise<void> =>
    new Promise((resolve, reject) => {
      channel.publish(exchange, routingKey, body, options, (error: unknown) => {
        if (error instanceof Error) reject(error);
        else resolve();
      });
    });
  return {
    prepare(messages, inFlight) {
      const parcels = messages.map(parcelOf);
      return () => windowed(parcels, inFlight, send);
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
async function bareWay(channel: ConfirmChannel, name: string): Promise<Way> {
  await channel.assertQueue(name, { durable: true, arguments: { "x-queue-type": "quorum" } });
  const parcelOf = ({ id, body }: RawMessage): Parcel => {
    const options = { persistent: true, messageId: id, contentType: "application/json" };
    return { exchange: "", routingKey: name, body, options };
  };
  return { queues: [name], parcelOf };
}

/** The exchanges and queues that the product declares for a group, under another prefix. */
async function sameWay(url: string, name: string): Promise<Way> {
  const declaring = rabbitmq({ url, prefix: name, partitions: PARTITIONS });
  await declaring.open();
  const subscription = subscriptionOf(1);
  const declared = await declaring.subscribe(subscription, () => undefined);
  await declared.close();
  await declaring.close();
  const { type, source } = orderMessage(0);
  const parcelOf = ({ id, key, body }: RawMessage): Parcel => {
    const options = {
      headers: headersOf(id),
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
  return { queues: groupNames(name, subscription, PARTITIONS).queues, parcelOf };
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
