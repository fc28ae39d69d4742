import type { Transport } from "sagabox";
import { brokerKinds, isBrokerKind, startBroker } from "../test/support/brokers/broker-server.ts";
import { brokerTransport } from "../test/support/brokers/broker-transport.ts";

export interface DemoTransport {
  /** Undefined: PostgreSQL itself carries the messages. */
  readonly transport: Transport | undefined;
  /** For people: what carries the messages, and where. */
  readonly description: string;
  readonly stop: () => Promise<void>;
}

const usage = `npm start [-- --transport postgres|${brokerKinds.join("|")}]`;

/** What `npm start -- --help` prints. */
export const demoHelp = `Runs a small shop on PostgreSQL, with customers and a view of what happens, until Ctrl-C.

Usage: ${usage}

  --transport <name>  What carries the messages. A broker is started if it is installed. Default: postgres
  --help              Show this text.

Ports, the database, a broker of your own: the variables are listed in examples/shop/README.md.`;

/** `--transport rabbitmq`, with the broker of SHOP_BROKER_URL or one that is started here. */
export async function demoTransport(
  args: readonly string[],
  givenUrl: string | undefined,
  say: (line: string) => void,
): Promise<DemoTransport> {
  const kind = transportName(args);
  if (kind === "postgres") {
    return { transport: undefined, description: "PostgreSQL itself", stop: () => Promise.resolve() };
  }
  if (!isBrokerKind(kind)) throw new Error(`There is no transport "${kind}". ${usage}`);
  if (givenUrl !== undefined && givenUrl !== "") {
    const transport = brokerTransport(kind, givenUrl);
    return { transport, description: `${kind}, at SHOP_BROKER_URL`, stop: () => Promise.resolve() };
  }
  say(`Starting ${kind} …`);
  const found = await startBroker(kind, { apart: true }); // it stops last, not with the Ctrl-C that this process receives
  if ("missing" in found) {
    throw new Error(
      `${kind} cannot be started here: ${found.missing}. ` +
        "Or set SHOP_BROKER_URL to a broker that runs already (see compose.yaml).",
    );
  }
  const { server } = found;
  return {
    transport: brokerTransport(kind, server.url),
    description: `${server.version}, started for this run`,
    stop: () => server.stop(),
  };
}

function transportName(args: readonly string[]): string {
  const [first = "--transport=postgres", second, ...more] = args;
  const [option, value = second] = first.split("=", 2);
  const tooMany = first.includes("=") ? second !== undefined : more.length > 0;
  if (option !== "--transport" || value === undefined || tooMany) {
    throw new Error(`I do not understand "${args.join(" ")}". ${usage}`);
  }
  return value;
}
