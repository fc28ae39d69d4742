import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { found, freePorts, startRabbitMQ, type RabbitServer } from "../rabbitmq-server.ts";
import { CLUSTER_SIZE, startNodes, type BrokerCluster, type ClusterFound } from "./broker-cluster.ts";

interface QueueView {
  readonly name: string;
  readonly type: string;
  readonly leader: string;
  readonly members: readonly string[];
  readonly online: readonly string[];
}

/** Three RabbitMQ nodes; quorum queues and streams have a replica on each. */
export async function startRabbitCluster(): Promise<ClusterFound> {
  const [epmdPort = 0] = await freePorts(1);
  const names = Array.from({ length: CLUSTER_SIZE }, (_, n) => `sagabox-${epmdPort}-${n + 1}@localhost`);
  const cookie = randomBytes(10).toString("hex").toUpperCase();
  const program = found("epmd");
  if (program === undefined) return { missing: "RabbitMQ is not installed: apt-get install rabbitmq-server" };
  const mapper = spawn(program, ["-port", String(epmdPort)], { stdio: "ignore" });
  const endMapper = (): Promise<unknown> => {
    const ended = once(mapper, "exit");
    mapper.kill("SIGKILL");
    return ended;
  };
  await once(mapper, "spawn");
  const start = (name: string): ReturnType<typeof startRabbitMQ> =>
    startRabbitMQ({ cluster: { name, nodes: names, epmdPort, cookie } });
  try {
    // The others join the first one, so it has to be there.
    const first = await startNodes(names.slice(0, 1).map(start));
    if ("missing" in first) {
      await endMapper();
      return first;
    }
    const rest = await startNodes(names.slice(1).map(start));
    if ("missing" in rest) throw new Error(rest.missing);
    return { cluster: clusterOf([...first.nodes, ...rest.nodes], endMapper) };
  } catch (error) {
    await endMapper();
    throw error;
  }
}

function clusterOf(nodes: readonly RabbitServer[], endMapper: () => Promise<unknown>): BrokerCluster {
  return {
    url: nodes.map(({ url }) => url).join(","),
    version: `${nodes[0]?.version ?? "RabbitMQ"}, three nodes`,
    nodes,
    leaders: async () => {
      const queues = await askAnyNode(nodes, listQueues);
      const led = queues.filter(({ name, type }) => type === "quorum" && name.includes(".queue."));
      const count = (node: RabbitServer): number => led.filter(({ leader }) => leader === node.name).length;
      return nodes.filter((node) => count(node) > 0).toSorted((a, b) => count(b) - count(a));
    },
    isWhole: async () => {
      if ((await askAnyNode(nodes, countRunning)) < CLUSTER_SIZE) return false;
      const replicated = (await askAnyNode(nodes, listQueues)).filter(({ type }) => type !== "classic");
      return replicated.every(({ members, online }) => members.length === online.length);
    },
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
      await endMapper();
    },
  };
}

// One after the other: each question starts an Erlang machine of its own.
async function askAnyNode<T>(
  nodes: readonly RabbitServer[],
  ask: (node: RabbitServer) => Promise<T>,
): Promise<T> {
  let failure: unknown;
  for (const node of nodes) {
    try {
      return await ask(node);
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

async function countRunning(node: RabbitServer): Promise<number> {
  return Number(await node.ctl("eval", "length(rabbit_nodes:all_running())."));
}

async function listQueues(node: RabbitServer): Promise<readonly QueueView[]> {
  const columns = ["name", "type", "leader", "members", "online"];
  return JSON.parse(await node.ctl("list_queues", "--formatter", "json", ...columns)) as QueueView[];
}
