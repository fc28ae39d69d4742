import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createInterface, type Interface } from "node:readline";
import {
  type RabbitClusterNode,
  found,
  freePorts,
  startRabbitMQ,
  type RabbitServer,
} from "../../support/brokers/rabbitmq-server.ts";
import { CLUSTER_SIZE, startNodes, type BrokerCluster, type ClusterFound } from "./broker-cluster.ts";

export interface ClusterView {
  /** How many nodes run. */
  readonly running: number;
  /** The replicated queues: the leader of each, how many replicas it has and how many of them are up. */
  readonly queues: readonly { name: string; leader: string; members: number; online: number }[];
}

const ANSWER_MS = 60_000;
const END = "end";

// Reads one command per line and ends every answer with a line of its own. It ends when its input does.
const PROGRAM = `
  Call = fun(Node, Module, Function, Arguments) ->
    case rpc:call(Node, Module, Function, Arguments, 20000) of
      {badrpc, Reason} -> throw(Reason);
      Answer -> Answer
    end
  end,
  View = fun(Nodes) ->
    [Node | _] = [N || N <- Nodes, net_adm:ping(N) =:= pong],
    io:format("~b~n", [length(Call(Node, rabbit_nodes, all_running, []))]),
    [case proplists:get_value(members, Q) of
       Members when is_list(Members), Members =/= [] ->
         {resource, _, _, Name} = proplists:get_value(name, Q),
         Online = length(proplists:get_value(online, Q)),
         io:format("~s ~s ~b ~b~n", [Name, proplists:get_value(leader, Q), length(Members), Online]);
       _ -> ok
     end || Q <- Call(Node, rabbit_amqqueue, info_all, [<<"/">>, [name, leader, members, online]])]
  end,
  Sync = fun(Node) -> [Call(Node, dets, sync, [Table]) || Table <- Call(Node, dets, all, [])] end,
  Serve = fun Serve() ->
    case io:get_line("") of
      eof -> halt();
      Line ->
        [Command | Names] = string:lexemes(string:trim(Line), " "),
        Nodes = [list_to_atom(Name) || Name <- Names],
        try
          case Command of
            "view" -> View(Nodes);
            "sync" -> Sync(hd(Nodes))
          end
        catch _:Reason -> io:format("failed ~0p~n", [Reason])
        end,
        io:format("${END}~n"),
        Serve()
    end
  end,
  Serve().`;

/**
 * Asks the nodes of a RabbitMQ cluster about their queues. One Erlang process serves all questions, because
 * `rabbitmqctl` takes many seconds to start on a busy machine.
 */
export class RabbitProbe {
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #lines: Interface;
  #last: Promise<unknown> = Promise.resolve();

  constructor({ cookie, epmdPort }: Pick<RabbitClusterNode, "cookie" | "epmdPort">) {
    const name = `probe-${randomBytes(4).toString("hex")}@localhost`;
    const words = ["-noshell", "-hidden", "-sname", name, "-setcookie", cookie, "+S", "1:1", "+sbwt", "none"];
    const env = {
      ...process.env,
      ERL_EPMD_PORT: String(epmdPort),
      ERL_EPMD_ADDRESS: "127.0.0.1",
      ERL_CRASH_DUMP_BYTES: "0",
    };
    this.#child = spawn("erl", [...words, "-eval", PROGRAM], { env });
    this.#child.stderr.resume();
    this.#child.stdin.on("error", () => undefined);
    this.#lines = createInterface({ input: this.#child.stdout });
  }

  async view(nodes: readonly string[]): Promise<ClusterView> {
    const [running, ...lines] = await this.#ask(["view", ...nodes]);
    const queues = lines.map((line) => {
      const [queue = "", leader = "", members, online] = line.split(" ");
      return { name: queue, leader, members: Number(members), online: Number(online) };
    });
    return { running: Number(running), queues };
  }

  /** Makes a node write its registers to disk. */
  async sync(node: string): Promise<void> {
    await this.#ask(["sync", node]);
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await ended;
  }

  /** One question at a time: answers come in the order of the questions. */
  #ask(words: readonly string[]): Promise<readonly string[]> {
    const answer = this.#last.then(() => this.#send(words));
    this.#last = answer.catch(() => undefined);
    return answer;
  }

  #send(words: readonly string[]): Promise<readonly string[]> {
    return new Promise((resolve, reject) => {
      const answer: string[] = [];
      const settle = (failure?: string): void => {
        clearTimeout(late);
        this.#lines.off("line", read);
        this.#child.off("exit", onExit);
        if (failure === undefined) resolve(answer);
        else reject(new Error(`The probe of the cluster failed: ${failure}`));
      };
      const read = (line: string): void => {
        if (line === END) settle(answer.find((one) => one.startsWith("failed ")));
        else answer.push(line);
      };
      const onExit = (): void => settle("its process ended");
      const late = setTimeout(() => {
        this.#child.kill("SIGKILL"); // a late answer would be taken for that of the next question
        settle(`no answer within ${ANSWER_MS} ms`);
      }, ANSWER_MS);
      this.#lines.on("line", read);
      this.#child.on("exit", onExit);
      this.#child.stdin.write(`${words.join(" ")}\n`);
    });
  }
}

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
