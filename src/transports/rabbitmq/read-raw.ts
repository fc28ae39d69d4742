import type { ConsumeMessage } from "amqplib";
import type { Message } from "../../message/index.ts";
import { fromWire, type Subscription } from "../../transport/index.ts";
import type { RabbitSettings } from "./options.ts";
import { attemptHeader, readCount, toTextHeaders, topicHeader } from "./properties.ts";
import type { Route } from "./topology.ts";

/** What came from a queue, as far as a delivery needs it. */
export interface ReceivedDelivery {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
  /** The attempts that were charged; `attempt` counts what the broker knows as well. */
  readonly attempts: number;
  readonly redeliveries: number;
  readonly topic: string;
}

interface Context {
  readonly subscription: Subscription;
  /** Of its topics, in their order. */
  readonly routes: readonly Route[];
  readonly settings: RabbitSettings;
}

export function readRaw(raw: ConsumeMessage, context: Context): ReceivedDelivery {
  const { subscription, settings } = context;
  const { headers } = raw.properties;
  const contentType = raw.properties.contentType as string | undefined;
  const topic = findTopic(raw, context);
  const texts = toTextHeaders(headers);
  const { message, flaw } = fromWire({ body: raw.content, headers: texts, contentType, topic, key: null });
  const redeliveries = readCount(headers, "x-delivery-count");
  const attempts = Math.max(1, readCount(headers, attemptHeader));
  const keyed = subscription.ordered && message.key !== null && flaw === undefined;
  return {
    message,
    ...(flaw === undefined ? {} : { flaw }),
    // Long before the broker puts a message aside that nobody ever settles, each redelivery is charged.
    attempt: attempts + Math.max(0, redeliveries - halfDeliveryLimit(settings)),
    orderKey: keyed ? `${message.topic}/${message.key}` : null,
    attempts,
    redeliveries,
    topic,
  };
}

/** So many redeliveries are free. */
export const halfDeliveryLimit = ({ deliveryLimit }: RabbitSettings): number => Math.floor(deliveryLimit / 2);

// Only foreign messages need it, whose body does not name a topic: what they are called must not change on the way.
function findTopic({ fields, properties }: ConsumeMessage, { subscription, routes }: Context): string {
  const kept: unknown = properties.headers?.[topicHeader];
  if (typeof kept === "string") return kept;
  const { exchange, routingKey } = fields;
  const type = routingKey.slice(routingKey.indexOf(".") + 1, routingKey.lastIndexOf("."));
  const binding = `*.${type}.*`;
  const asked = routes.findIndex(
    (route) =>
      route.exchange === exchange &&
      (route.binding === binding || route.binding === routingKey || route.binding === ""),
  );
  return subscription.topics[asked]?.topic ?? routingKey;
}
