import type { BusTopology } from "../../app/index.ts";
import { SagaboxError } from "../../errors/index.ts";
import { type Command, DONE, type Io, textValue, UsageError } from "../command.ts";
import { loadApp } from "../load-app.ts";
import { jsonText, safeLines, table } from "../print.ts";

export const topology: Command = {
  name: "topology",
  summary: "Print the topics that an application consumes and the broker objects it creates for them.",
  usage: ["topology --app <module> [--json]"],
  details: `Prints the exchanges, queues and bindings of RabbitMQ, the topics and groups of Kafka, or the streams and consumers of NATS,
and the minimal rights for consuming. Nothing is created, and neither the broker nor the database is contacted. Published
topics and the reply topic are not included, because they are not known in advance: add them when you grant rights.

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
    throw new SagaboxError("APP_MODULE_INVALID", `"${app}" exports a bus without a topology() method.`);
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
      ? "It consumes no topics."
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
