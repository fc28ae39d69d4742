import { execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { promisify } from "node:util";
import { found, freePorts, startRabbitMQ, type RabbitServer } from "../rabbitmq-server.ts";
import { CLUSTER_SIZE, startNodes, type BrokerCluster, type ClusterFound } from "./broker-cluster.ts";

const run = promisify(execFile);

interface ClusterView {
  /** How many nodes run. */
  readonly running: number;
  /** The replicated queues: who leads each, and how many of its replicas there are and are up. */
  readonly queues: readonly { name: string; leader: string; members: number; online: number }[];
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

function clusterOf(nodes: readonly RabbitServer[], end: () => Promise<unknown>): BrokerCluster {
  const view = (): Promise<ClusterView> => viewFrom(nodes);
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

// rabbitmqctl takes seconds to start, a bare Erlang machine a fraction of one. It asks the first node that answers.
async function viewFrom(nodes: readonly RabbitServer[]): Promise<ClusterView> {
  const [place] = nodes.flatMap(({ place: found }) => found ?? []);
  if (place === undefined) throw new Error("These nodes are no cluster.");
  const names = nodes.map(({ name }) => `'${name}'`).join(",");
  const program = `
    [Node | _] = [N || N <- [${names}], net_adm:ping(N) =:= pong],
    Running = rpc:call(Node, rabbit_nodes, all_running, []),
    io:format("~b~n", [length(Running)]),
    Items = [name, leader, members, online],
    [case proplists:get_value(members, Q) of
       Members when is_list(Members), Members =/= [] ->
         {resource, _, _, Name} = proplists:get_value(name, Q),
         Online = length(proplists:get_value(online, Q)),
         io:format("~s ~s ~b ~b~n", [Name, proplists:get_value(leader, Q), length(Members), Online]);
       _ -> ok
     end || Q <- rpc:call(Node, rabbit_amqqueue, info_all, [<<"/">>, Items])],
    halt().`;
  const name = `probe-${randomBytes(4).toString("hex")}@localhost`;
  const words = ["-noinput", "-hidden", "-sname", name, "-setcookie", place.cookie, "-eval", program];
  const env = { ...process.env, ERL_EPMD_PORT: String(place.epmdPort), ERL_EPMD_ADDRESS: "127.0.0.1" };
  const { stdout } = await run("erl", words, { env, timeout: 60_000 });
  const [running, ...lines] = stdout.trim().split("\n");
  const queues = lines.map((line) => {
    const [queue = "", leader = "", members, online] = line.split(" ");
    return { name: queue, leader, members: Number(members), online: Number(online) };
  });
  return { running: Number(running), queues };
}
