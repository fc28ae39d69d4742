import type { BusTopology } from "../../app/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { type Command, DONE, type Io, textValue, UsageError } from "../command.ts";
import { loadApp } from "../load-app.ts";
import { jsonText, safeLines, table } from "../print.ts";

export const topology: Command = {
  name: "topology",
  summary: "Print what an application consumes, and what it makes at the broker for that.",
  usage: ["topology --app <module> [--json]"],
  details: `Exchanges, queues and bindings of RabbitMQ, topics and groups of Kafka, streams and consumers of NATS, and the least
rights that consuming takes there. Nothing is made, and neither broker nor database is asked. What the application publishes
is not known before it does, nor are the replies it waits for: add them where you grant rights.

Example:
  sagabox topology --app ./app.ts`,
  options: {
    app: { type: "string", value: "<module>", help: "File that exports the bus." },
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    const app = textValue(input, "app");
    if (app === undefined) throw new UsageError('"sagabox topology" needs --app <module>.');
    if (input.positionals.length > 0) {
      throw new UsageError(`"sagabox topology" takes no argument, but got ${input.positionals.join(" ")}.`);
    }
    const seen = await loadTopology(app, io);
    io.out(input.values["json"] === true ? jsonText(seen) : topologyText(seen, io.terminal?.columns));
    return DONE;
  },
};

async function loadTopology(app: string, io: Io): Promise<BusTopology> {
  const bus = await loadApp(app, io.cwd);
  try {
    const { topology: asked } = bus as { topology?: () => BusTopology };
    if (typeof asked === "function") return asked.call(bus);
    throw new SagaboxError("APP_MODULE_INVALID", `"${app}" exports a bus that cannot tell its topology.`);
  } finally {
    await bus.stop();
  }
}

function topologyText(
  { service, transport, groups, objects, permissions }: BusTopology,
  columns: number | undefined,
): string {
  const consumed = groups.flatMap(({ group, ordered, topics }) =>
    topics.map(({ topic, kind }) => [group, topic, kind, ordered ? "by key" : "none"]),
  );
  return [
    safeLines(`Service ${service} over ${transport}`),
    "",
    consumed.length === 0
      ? "It consumes nothing."
      : table(["consumer", "topic", "kind", "order"], consumed, columns),
    ...(objects.length === 0
      ? []
      : [
          "",
          table(
            ["at the broker", "name", "detail"],
            objects.map(({ kind, name, detail }) => [kind, name, detail]),
            columns,
          ),
        ]),
    ...(permissions.length === 0
      ? []
      : ["", "Rights for consuming:", ...permissions.map((line) => `  ${safeLines(line)}`)]),
  ].join("\n");
}
