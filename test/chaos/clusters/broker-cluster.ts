import type { BrokerKind, BrokerServer } from "../../support/brokers/broker-server.ts";
import { until } from "../until.ts";

/** Three nodes of one broker on the loopback, with everything replicated to all of them. */
export interface BrokerCluster {
  /** The addresses of all nodes, separated by commas. */
  readonly url: string;
  readonly version: string;
  readonly nodes: readonly BrokerServer[];
  /** The nodes that lead something the messages depend on, the most important first; empty during an election. */
  leaders(): Promise<readonly BrokerServer[]>;
  /** Whether every node runs and every replica has caught up. */
  isWhole(): Promise<boolean>;
  /** Stops all nodes and removes their data. */
  stop(): Promise<void>;
}

export type ClusterFound = { readonly cluster: BrokerCluster } | { readonly missing: string };

export const CLUSTER_SIZE = 3;

const starts: Readonly<Record<BrokerKind, () => Promise<ClusterFound>>> = {
  rabbitmq: async () => (await import("./rabbitmq-cluster.ts")).startRabbitCluster(),
  kafka: async () => (await import("./kafka-cluster.ts")).startKafkaCluster(),
  nats: async () => (await import("./nats-cluster.ts")).startNatsCluster(),
};

/** Starts a cluster and waits until it is complete, or returns the reason why it cannot. */
export async function startCluster(kind: BrokerKind): Promise<ClusterFound> {
  const found = await starts[kind]();
  if ("missing" in found) return found;
  const { cluster } = found;
  await untilWhole(cluster).catch(async (error: unknown) => {
    await cluster.stop();
    throw error;
  });
  return found;
}

/** Waits until every replica has caught up, so that the next fault meets a full cluster. */
export async function untilWhole(cluster: BrokerCluster): Promise<void> {
  const isWhole = (): Promise<boolean> => cluster.isWhole().catch(() => false);
  await until("the cluster is whole", isWhole, { timeoutMs: 180_000, everyMs: 250 });
}

/** Waits for an election to end and returns one of the leaders. */
export async function findLeader(cluster: BrokerCluster, turn = 0): Promise<BrokerServer> {
  let leader: BrokerServer | undefined;
  const isElected = async (): Promise<boolean> => {
    const leaders = await cluster.leaders().catch(() => []);
    leader = leaders[turn % Math.max(1, leaders.length)];
    return leader !== undefined;
  };
  await until("the cluster has a leader", isElected, { timeoutMs: 120_000, everyMs: 100 });
  if (leader === undefined) throw new Error("The cluster has no leader.");
  return leader;
}

/** Starts every node at once; if one fails, the others are stopped. */
export async function startNodes<Node extends BrokerServer>(
  starting: readonly Promise<{ readonly server: Node } | { readonly missing: string }>[],
): Promise<{ readonly nodes: readonly Node[] } | { readonly missing: string }> {
  const results = await Promise.allSettled(starting);
  const found = results.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const nodes = found.flatMap((node) => ("server" in node ? [node.server] : []));
  if (nodes.length === starting.length) return { nodes };
  await Promise.all(nodes.map((node) => node.stop()));
  const missing = found.find((node) => "missing" in node);
  if (missing !== undefined && "missing" in missing) return missing;
  throw results.find((result) => result.status === "rejected")?.reason;
}
