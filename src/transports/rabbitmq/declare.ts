import type { Channel, Options } from "amqplib";
import type { Link, LiveConnection } from "./link.ts";
import {
  type GroupNames,
  laneBindings,
  returnBinding,
  type Route,
  sharedExchanges,
  type WaitingQueue,
} from "./topology.ts";
import type { RabbitSettings } from "./options.ts";

const durable = { durable: true, autoDelete: false };

/** Declares on a separate channel, because the broker closes the channel when it refuses a declaration. */
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

/** Declares the exchange of a route, and its stream queue if it has one. */
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

/** Declares all exchanges, queues and bindings of a group. Declaring them again changes nothing. */
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

// The exchange type and the alternate exchange depend on the number of queues, so the broker refuses to declare the
// group with a different number.
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
      // Priorities would break the order of a key, so only groups without order have them.
      ...(queues === "classic" && !ordered ? { "x-max-priority": 9 } : {}),
    },
  };
}

function queueTypeArguments({ queues }: RabbitSettings): Record<string, unknown> {
  return { "x-queue-type": queues };
}

// A quorum queue keeps a dead letter until its target queue has confirmed it.
function deadLetterArguments(settings: RabbitSettings, exchange: string): Record<string, unknown> {
  return {
    ...queueTypeArguments(settings),
    "x-dead-letter-exchange": exchange,
    "x-overflow": "reject-publish",
    ...(settings.queues === "quorum" ? { "x-dead-letter-strategy": "at-least-once" } : {}),
  };
}

/** Declares the queue in which messages wait for a retry, and its binding. */
export async function declareWaiting(
  channel: Channel,
  waiting: WaitingQueue,
  settings: RabbitSettings,
): Promise<void> {
  const { retry, back } = sharedExchanges(settings.prefix);
  await channel.assertQueue(waiting.queue, {
    ...durable,
    arguments: {
      // Always a quorum queue: a classic queue would drop a message whose target queue is full.
      ...deadLetterArguments({ ...settings, queues: "quorum" }, back),
      "x-message-ttl": waiting.delayMs,
      "x-expires": waiting.expiresMs,
    },
  });
  await channel.bindQueue(waiting.queue, retry, waiting.binding);
}
