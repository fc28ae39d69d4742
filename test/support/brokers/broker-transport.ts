import type { Transport } from "sagabox";
import { kafka } from "sagabox/kafka";
import { nats } from "sagabox/nats";
import { rabbitmq } from "sagabox/rabbitmq";
import type { BrokerKind } from "./broker-server.ts";

export interface BrokerTestOptions {
  /** What a silent member held is given to others after a few seconds. */
  readonly quickly?: boolean;
}

/** A transport to it. Several addresses, separated by commas, are those of a cluster: each stream gets a replica per node. */
export function brokerTransport(kind: BrokerKind, url: string, options: BrokerTestOptions = {}): Transport {
  const { quickly = false } = options;
  const urls = url.split(",");
  switch (kind) {
    case "rabbitmq":
      return rabbitmq({ url: urls });
    case "kafka":
      return kafka({
        brokers: urls.map((one) => one.replace(/^kafka:\/\//, "")),
        ...(quickly && { sessionTimeout: "6s" }),
      });
    case "nats":
      return nats({ servers: urls, replicas: urls.length, ...(quickly && { lease: "2s" }) });
  }
}
