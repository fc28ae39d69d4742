import { explainMessage, type Explanation } from "../../admin/index.ts";
import { UsageError, type Command, type CommandInput } from "../command.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { withSchema } from "../settings.ts";

export const explain: Command = {
  name: "explain",
  summary: "Show the history of one message: where it is, why, and what happens next.",
  usage: ["explain <message-id> [--schema <name>] [--json]"],
  details: `Reads the outbox, archive, receipts, deliveries, inbox, dead letters, sagas and audit log of this database and changes
nothing. It cannot see messages inside a broker, or consumers with another database.

Example:
  sagabox explain 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11

Connects to DATABASE_URL.`,
  options: {
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    const id = readId(input);
    const explanation = await withSchema(input, io, "viewer", (database, schema) =>
      explainMessage(database, schema, id),
    );
    io.out(
      input.values["json"] === true
        ? jsonText(explanation)
        : explanationText(explanation, io.terminal?.columns),
    );
    return 0;
  },
};

function readId({ positionals: [id, ...rest] }: CommandInput): string {
  if (id === undefined || id === "") throw new UsageError('"sagabox explain" needs the id of a message.');
  if (rest.length > 0)
    throw new UsageError(`"sagabox explain" takes no further argument, but got ${rest.join(" ")}.`);
  return id;
}

function explanationText(
  { message, standings, timeline, saga, isMasked }: Explanation,
  columns: number | undefined,
): string {
  const marks = [
    message.isEncrypted ? ["personal fields encrypted"] : [],
    message.isClaimChecked ? ["payload in a store"] : [],
  ].flat();
  const facts = [
    `${message.kind} ${message.type} version ${message.schemaVersion}, topic ${message.topic}`,
    `key ${message.key ?? (isMasked ? "hidden" : "none")}, lane ${message.lane ?? "?"}, priority ${message.priority}, ${message.bytes} bytes` +
      (marks.length === 0 ? "" : `, ${marks.join(", ")}`),
    `correlation id ${message.correlationId}, trace ${message.traceId}`,
    ...(isMasked
      ? ["Hidden from viewers: the key, error texts, other messages of the key, and actions of operators."]
      : []),
    ...(message.expiresAt === null ? [] : [`expires at ${message.expiresAt}`]),
    ...(saga === null
      ? []
      : [`saga ${saga.id} (${saga.type}, ${saga.status}); see: sagabox saga show ${saga.id}`]),
  ];
  const where = standings.map(
    ({ where: part, state, why, next }) =>
      `${part}: ${state}\n  ${why.replaceAll("\n", "\n    ")}\n  → ${next}`,
  );
  return [
    safeLines(`${message.id}\n\n${facts.join("\n")}\n\n${where.join("\n")}`),
    "",
    table(
      ["at", "what happened"],
      timeline.map(({ at, what }) => [at, what]),
      columns,
    ),
  ].join("\n");
}
