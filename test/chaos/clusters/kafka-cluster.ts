import { Connection, describeQuorumV2, metadataV12 } from "@platformatic/kafka";
import { findFreePort } from "../../../src/embedded/start-embedded-postgres.ts";
import { newClusterId, startKafka, type KafkaServer } from "../../support/brokers/kafka-server.ts";
import { CLUSTER_SIZE, startNodes, type BrokerCluster, type ClusterFound } from "./broker-cluster.ts";

const HEAP_MB = 256;
const METADATA = "__cluster_metadata";

type Metadata = Awaited<ReturnType<typeof metadataV12.api.async>>;

/** Three Kafka brokers that are their own controllers; topics have three replicas, two of which must be in sync. */
export async function startKafkaCluster(): Promise<ClusterFound> {
  const cluster = newClusterId();
  const controllers = await Promise.all(Array.from({ length: CLUSTER_SIZE }, () => findFreePort()));
  const start = (_: number, n: number): ReturnType<typeof startKafka> =>
    startKafka({ heapMb: HEAP_MB, quorum: { cluster, node: n + 1, controllers } });
  const started = await startNodes(controllers.map(start));
  return "missing" in started ? started : { cluster: createCluster(started.nodes) };
}

function createCluster(nodes: readonly KafkaServer[]): BrokerCluster {
  const findNode = (id: number | undefined): readonly KafkaServer[] => nodes.slice((id ?? 0) - 1, id ?? 0);
  const anywhere = <T>(ask: (connection: Connection) => Promise<T>): Promise<T> =>
    Promise.any(nodes.map((node) => askNode(node, ask)));
  return {
    url: nodes.map(({ url }) => url).join(","),
    version: `${nodes[0]?.version ?? "Apache Kafka"}, three nodes`,
    nodes,
    // The leaders of a partition that carries messages, of the controllers, and of the offsets of groups.
    leaders: async () => {
      const { topics } = await anywhere((connection) => metadataV12.api.async(connection, null));
      const ids = [
        leaderIn(topics.find(({ isInternal, name }) => !isInternal && name !== METADATA)),
        await anywhere(activeController),
        leaderIn(topics.find(({ isInternal }) => isInternal)),
      ];
      return ids.flatMap((id) => findNode(id));
    },
    isWhole: async () => {
      const answers = await Promise.all(
        nodes.map((node) => askNode(node, (connection) => metadataV12.api.async(connection, null))),
      );
      return answers.every(isReplicated);
    },
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    },
  };
}

const leaderIn = (topic: Metadata["topics"][number] | undefined): number | undefined =>
  topic?.partitions[0]?.leaderId;

function isReplicated({ brokers, topics }: Metadata): boolean {
  const partitions = topics.flatMap((topic) => topic.partitions);
  return (
    brokers.length === CLUSTER_SIZE &&
    partitions.every(({ leaderId, isrNodes }) => leaderId > 0 && isrNodes.length === CLUSTER_SIZE)
  );
}

async function activeController(connection: Connection): Promise<number | undefined> {
  const wanted = [{ topicName: METADATA, partitions: [{ partitionIndex: 0 }] }];
  const { topics } = await describeQuorumV2.api.async(connection, wanted);
  return topics[0]?.partitions[0]?.leaderId;
}

async function askNode<T>({ url }: KafkaServer, ask: (connection: Connection) => Promise<T>): Promise<T> {
  const connection = new Connection("harness", { connectTimeout: 2_000, requestTimeout: 5_000 });
  connection.on("error", () => undefined);
  const { hostname, port } = new URL(`tcp://${url}`);
  try {
    await connection.connect(hostname, Number(port));
    return await ask(connection);
  } finally {
    if (connection.isConnected()) await connection.close();
  }
}
