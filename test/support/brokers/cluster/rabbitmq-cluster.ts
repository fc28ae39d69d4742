import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { found, freePorts, startRabbitMQ, type RabbitServer } from "../rabbitmq-server.ts";
import { CLUSTER_SIZE, startNodes, type BrokerCluster, type ClusterFound } from "./broker-cluster.ts";
import { RabbitProbe, type ClusterView } from "./rabbitmq-probe.ts";

/** Three RabbitMQ nodes; quorum queues and streams have a replica on each. */
export async function startRabbitCluster(): Promise<ClusterFound> {
  const [epmdPort = 0] = await freePorts(1);
  const names = Array.from({ length: CLUSTER_SIZE }, (_, n) => `sagabox-${epmdPort}-${n + 1}@localhost`);
  const cookie = randomBytes(10).toString("hex").toUpperCase();
  const program = found("epmd");
  if (program === undefined) return { missing: "RabbitMQ is not installed: apt-get install rabbitmq-server" };
  const mapper = spawn(program, ["-port", String(epmdPort)], { stdio: "ignore" });
  await once(mapper, "spawn");
  const probe = new RabbitProbe({ cookie, epmdPort });
  const end = async (): Promise<void> => {
    await probe.stop();
    const ended = once(mapper, "exit");
    mapper.kill("SIGKILL");
    await ended;
  };
  const start = (name: string): ReturnType<typeof startRabbitMQ> =>
    startRabbitMQ({
      cluster: { name, nodes: names, epmdPort, cookie },
      sync: (node) => probe.sync(node),
    });
  try {
    // The others join the first one, so it has to be there.
    const first = await startNodes(names.slice(0, 1).map(start));
    if ("missing" in first) {
      await end();
      return first;
    }
    const rest = await startNodes(names.slice(1).map(start));
    if ("missing" in rest) throw new Error(rest.missing);
    return { cluster: createCluster([...first.nodes, ...rest.nodes], probe, end) };
  } catch (error) {
    await end();
    throw error;
  }
}

function createCluster(
  nodes: readonly RabbitServer[],
  probe: RabbitProbe,
  end: () => Promise<void>,
): BrokerCluster {
  const view = (): Promise<ClusterView> => probe.view(nodes.map(({ name }) => name));
  return {
    url: nodes.map(({ url }) => url).join(","),
    version: `${nodes[0]?.version ?? "RabbitMQ"}, three nodes`,
    nodes,
    leaders: async () => {
      const led = (await view()).queues.filter(({ name }) => name.includes(".queue."));
      const count = (node: RabbitServer): number => led.filter(({ leader }) => leader === node.name).length;
      return nodes.filter((node) => count(node) > 0).toSorted((a, b) => count(b) - count(a));
    },
    isWhole: async () => {
      const { running, queues } = await view();
      return running === CLUSTER_SIZE && queues.every(({ members, online }) => members === online);
    },
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
      await end();
    },
  };
}
