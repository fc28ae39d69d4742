import type { BrokerKind } from "../../test/support/brokers/broker-server.ts";
import type { RawClient, RawWork } from "./raw-client.ts";
import { rawKafka } from "./raw-kafka.ts";
import { rawNATS } from "./raw-nats.ts";
import { rawRabbitMQ } from "./raw-rabbitmq.ts";

const clients: Readonly<
  Record<BrokerKind, (url: string, name: string, work: RawWork) => Promise<RawClient>>
> = { rabbitmq: rawRabbitMQ, kafka: rawKafka, nats: rawNATS };

/** Queues, a stream or a topic of this name, and the broker's client to it. */
export function rawClient(kind: BrokerKind, url: string, name: string, work: RawWork): Promise<RawClient> {
  return clients[kind](url, name, work);
}
