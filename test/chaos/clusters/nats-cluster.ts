import { jetstreamManager, type StreamInfo } from "@nats-io/jetstream";
import { connect, type NatsConnection } from "@nats-io/transport-node";
import { findFreePort } from "../../../src/embedded/start-embedded-postgres.ts";
import type { BrokerServer } from "../../support/brokers/broker-server.ts";
import { startNATS } from "../../support/brokers/nats-server.ts";
import { CLUSTER_SIZE, startNodes, type BrokerCluster, type ClusterFound } from "./broker-cluster.ts";

const nodeName = (n: number): string => `node-${n}`;

/** Three NATS servers with JetStream. Streams of three replicas are the client's choice. */
export async function startNatsCluster(): Promise<ClusterFound> {
  const routes = await Promise.all(Array.from({ length: CLUSTER_SIZE }, () => findFreePort()));
  const others = routes.map((port) => `"nats-route://127.0.0.1:${port}"`).join(", ");
  const config = (port: number, n: number): string =>
    [
      `server_name: ${nodeName(n)}`,
      // Clients keep to the addresses they were given, so that a test can put a wire in front of each.
      `cluster { name: sagabox, listen: "127.0.0.1:${port}", routes: [${others}], no_advertise: true }`,
    ].join("\n");
  const started = await startNodes(routes.map((port, n) => startNATS({ config: config(port, n) })));
  return "missing" in started ? started : { cluster: createCluster(started.nodes) };
}

function createCluster(nodes: readonly BrokerServer[]): BrokerCluster {
  const url = nodes.map((node) => node.url).join(",");
  return {
    url,
    version: `${nodes[0]?.version ?? "NATS"}, three nodes`,
    nodes,
    leaders: async () => {
      const streams = await askCluster(url, listStreams);
      const led = streams.filter(({ config }) => config.name.endsWith("_messages"));
      const names = new Set([...led, ...streams].flatMap(({ cluster }) => cluster?.leader ?? []));
      return [...names].flatMap((name) => nodes[Number(name.slice(nodeName(0).length - 1))] ?? []);
    },
    isWhole: async () => {
      // Each node must answer, not only the one that a client happens to reach.
      const answers = await Promise.all(nodes.map((node) => askCluster(node.url, listStreams)));
      return answers.flat().every(isReplicated);
    },
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    },
  };
}

function isReplicated({ config, cluster }: StreamInfo): boolean {
  const replicas = cluster?.replicas ?? [];
  return (
    (cluster?.leader ?? "") !== "" &&
    replicas.length === config.num_replicas - 1 &&
    replicas.every(({ current, offline }) => current && offline !== true)
  );
}

async function listStreams(connection: NatsConnection): Promise<StreamInfo[]> {
  const manager = await jetstreamManager(connection, { timeout: 5_000 });
  const streams: StreamInfo[] = [];
  for await (const stream of manager.streams.list()) streams.push(stream);
  return streams;
}

async function askCluster<T>(url: string, ask: (connection: NatsConnection) => Promise<T>): Promise<T> {
  const connection = await connect({ servers: url.split(","), reconnect: false, timeout: 5_000 });
  try {
    return await ask(connection);
  } finally {
    await connection.close();
  }
}
