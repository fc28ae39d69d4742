import type { Channel, Options } from "amqplib";
import type { Link, LiveConnection } from "./link.ts";
import { returnBinding, type WaitingQueue } from "./delay-steps.ts";
import { laneBindings } from "./names.ts";
import type { RabbitSettings } from "./options.ts";
import { sharedExchanges, type GroupNames, type Route } from "./topology.ts";

const durable = { durable: true, autoDelete: false };

/** Declares on a channel of its own: a refusal closes the channel it came on. */
export async function withDeclareChannel<T>(
  link: Link,
  live: LiveConnection,
  declare: (channel: Channel) => Promise<T>,
): Promise<T> {
  const channel = await link.openChannel(live);
  const result = await link.request(live, "declaring", declare(channel));
  await link.request(live, "closing a channel", channel.close());
  return result;
}

/** What a publisher needs before it can send. */
export async function declareRoute(channel: Channel, route: Route, settings: RabbitSettings): Promise<void> {
  await channel.assertExchange(route.exchange, route.exchangeType, durable);
  if (route.streamQueue === undefined) return;
  await channel.assertQueue(route.streamQueue, {
    ...durable,
    arguments: {
      "x-queue-type": "stream",
      "x-max-age": `${Math.ceil(settings.streamRetentionMs / 1_000)}s`,
    },
  });
  await channel.bindQueue(route.streamQueue, route.exchange, route.binding);
}

/** Everything of a group, from the exchanges it listens to down to its dead letters. Declaring it again is harmless. */
export async function declareGroup(
  channel: Channel,
  names: GroupNames,
  routes: readonly Route[],
  settings: RabbitSettings,
): Promise<void> {
  const shared = sharedExchanges(settings.prefix);
  await channel.assertExchange(shared.deadLetter, "direct", durable);
  await channel.assertExchange(shared.retry, "topic", durable);
  await channel.assertExchange(shared.back, "topic", durable);
  await channel.assertQueue(names.deadLetterQueue, { ...durable, arguments: queueTypeArguments(settings) });
  await channel.bindQueue(names.deadLetterQueue, shared.deadLetter, names.id);
  await declareGroupExchange(channel, names);
  for (const queue of names.queues) {
    await channel.assertQueue(queue, groupQueueOptions(names, settings));
    await channel.bindQueue(queue, shared.back, returnBinding(queue));
  }
  await bindQueues(channel, names);
  for (const route of routes) {
    await declareRoute(channel, route, settings);
    if (route.streamQueue === undefined) {
      await channel.bindExchange(names.exchange, route.exchange, route.binding);
    }
  }
}

// Its type and its alternate exchange say how many queues there are, so that the broker refuses another number.
async function declareGroupExchange(channel: Channel, { exchange, restExchange }: GroupNames): Promise<void> {
  if (restExchange === undefined) {
    await channel.assertExchange(exchange, "fanout", durable);
    return;
  }
  await channel.assertExchange(exchange, "topic", { ...durable, alternateExchange: restExchange });
  await channel.assertExchange(restExchange, "fanout", durable);
}

async function bindQueues(channel: Channel, { exchange, restExchange, queues }: GroupNames): Promise<void> {
  for (const [n, queue] of queues.entries()) {
    const bindings = restExchange === undefined ? [""] : laneBindings(n, queues.length);
    for (const binding of bindings) await channel.bindQueue(queue, exchange, binding);
  }
  const [first] = queues;
  if (restExchange !== undefined && first !== undefined) await channel.bindQueue(first, restExchange, "");
}

function groupQueueOptions({ id, restExchange }: GroupNames, settings: RabbitSettings): Options.AssertQueue {
  const { queues, maxLength, deliveryLimit, prefix } = settings;
  const ordered = restExchange !== undefined;
  return {
    ...durable,
    arguments: {
      ...deadLetterArguments(settings, sharedExchanges(prefix).deadLetter),
      "x-dead-letter-routing-key": id,
      ...(queues === "quorum" ? { "x-delivery-limit": deliveryLimit } : {}),
      ...(maxLength === undefined ? {} : { "x-max-length": maxLength }),
      ...(ordered ? { "x-single-active-consumer": true } : {}),
      // Urgency would break the order of a key, so only groups without order have it.
      ...(queues === "classic" && !ordered ? { "x-max-priority": 9 } : {}),
    },
  };
}

function queueTypeArguments({ queues }: RabbitSettings): Record<string, unknown> {
  return { "x-queue-type": queues };
}

// A quorum queue keeps a dead letter until the place it goes to has confirmed it.
function deadLetterArguments(settings: RabbitSettings, exchange: string): Record<string, unknown> {
  return {
    ...queueTypeArguments(settings),
    "x-dead-letter-exchange": exchange,
    "x-overflow": "reject-publish",
    ...(settings.queues === "quorum" ? { "x-dead-letter-strategy": "at-least-once" } : {}),
  };
}

export async function declareWaiting(
  channel: Channel,
  waiting: WaitingQueue,
  settings: RabbitSettings,
): Promise<void> {
  const { retry, back } = sharedExchanges(settings.prefix);
  await channel.assertQueue(waiting.queue, {
    ...durable,
    arguments: {
      // Replicated whatever the others are: a classic one would drop what finds its way back full.
      ...deadLetterArguments({ ...settings, queues: "quorum" }, back),
      "x-message-ttl": waiting.delayMs,
      "x-expires": waiting.expiresMs,
    },
  });
  await channel.bindQueue(waiting.queue, retry, waiting.binding);
}
