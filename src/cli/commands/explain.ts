import {
  explain as explainTarget,
  type ExplainTarget,
  type Explanation,
  type Findings,
} from "../../admin/index.ts";
import { type Command, type CommandInput, textValue, UsageError } from "../command.ts";
import { dropUndefined, numberValue } from "../option-values.ts";
import { jsonText, safeLines, table } from "../print.ts";
import { withSchema } from "../settings.ts";

export const explain: Command = {
  name: "explain",
  summary: "Find a message, saga or key: where it is, why, and what happens next.",
  usage: [
    "explain <id-or-key> [--limit <number>] [--json]",
    "explain --key <key> | --correlation-id <id> | --trace <id>",
  ],
  details: `Takes a message id, a saga id, the number of a dead letter, a business key, a correlation id or a trace id, and shows all
messages and sagas it belongs to on one timeline. A key also finds the commands and replies of its sagas. If a text has
several meanings, all are shown; --key, --correlation-id and --trace choose one. Viewers cannot search keys.

Reads the outbox, archive, receipts, deliveries, inbox, dead letters, sagas and audit log of this database and changes
nothing. It cannot see messages inside a broker, or consumers with another database.

Examples:
  sagabox explain 123
  sagabox explain 0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11
  sagabox explain --trace 4bf92f3577b34da6a3ce929d0e0e4736

Connects to DATABASE_URL.`,
  options: {
    key: {
      type: "string",
      value: "<key>",
      help: "Only sagas with this business key and their messages, and messages with this key.",
    },
    "correlation-id": {
      type: "string",
      value: "<id>",
      help: "Only messages and sagas with this correlation id.",
    },
    trace: { type: "string", value: "<id>", help: "Only messages and sagas with this trace id." },
    limit: {
      type: "string",
      value: "<number>",
      help: "Maximum number of messages and of sagas, newest first. Default: 20.",
    },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    const target = readTarget(input);
    const options = dropUndefined({ limit: numberValue(input, "limit") });
    const findings = await withSchema(input, io, "viewer", (database, schema) =>
      explainTarget(database, schema, target, options),
    );
    io.out(input.values["json"] === true ? jsonText(findings) : findingsText(findings, io.terminal?.columns));
    return 0;
  },
};

function readTarget(input: CommandInput): ExplainTarget {
  const [id, ...rest] = input.positionals;
  const named = dropUndefined({
    key: textValue(input, "key"),
    correlationId: textValue(input, "correlation-id"),
    traceId: textValue(input, "trace"),
  });
  const given = Object.keys(named).length + (id === undefined || id === "" ? 0 : 1);
  if (given === 0) {
    throw new UsageError('"sagabox explain" needs an id or a key, or --key, --correlation-id or --trace.');
  }
  if (rest.length > 0)
    throw new UsageError(`"sagabox explain" takes no further argument, but got ${rest.join(" ")}.`);
  if (given > 1) {
    throw new UsageError(
      '"sagabox explain" takes one id or key, or one of --key, --correlation-id, --trace.',
    );
  }
  return id === undefined || id === "" ? (named as ExplainTarget) : id;
}

/** Renders one message in full. Several messages and sagas get one paragraph each and a common timeline. */
export function findingsText(findings: Findings, columns: number | undefined): string {
  const { messages, sagas, meanings } = findings;
  const [only] = messages;
  const isOne = messages.length === 1 && sagas.length === 0;
  if (isOne && only !== undefined && meanings.every((meaning) => meaning === "message id")) {
    return explanationText(only, columns);
  }
  const timeline = findings.timeline.map(({ at, of, what }) => [at, of, what]);
  return [
    safeLines([titleText(findings), ...sagas.map(sagaText), ...messages.map(messageText)].join("\n\n")),
    "",
    table(["at", "of", "what happened"], timeline, columns),
    "",
    safeLines(nextText(findings)),
  ].join("\n");
}

function titleText({ asked, meanings, messages, sagas, isCut, isMasked }: Findings): string {
  const counts = [countOf(messages.length, "message"), countOf(sagas.length, "saga")].filter(Boolean);
  return [
    `${asked} is a ${meanings.join(" and a ")}: ${counts.join(", ")}`,
    ...(isCut ? ["Only the newest are shown; --limit shows more."] : []),
    ...(isMasked
      ? ["Hidden from viewers: keys, error texts, other messages of a key, and actions of operators."]
      : []),
  ].join("\n");
}

function countOf(count: number, noun: string): string {
  return count === 0 ? "" : `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function sagaText({ id, type, key, status, correlationId, waitsFor }: Findings["sagas"][number]): string {
  const waits = waitsFor === null ? "" : `, waits for ${waitsFor}`;
  return `saga ${type} ${id}\n  key ${key ?? "hidden"}, correlation id ${correlationId}\n  ${status}${waits}`;
}

function messageText({ message, standings, isMasked }: Explanation): string {
  const key = message.key ?? (isMasked ? "hidden" : "none");
  return [
    `${message.kind} ${message.type} ${message.id}`,
    `  key ${key}, correlation id ${message.correlationId}`,
    ...standings.map(({ where, state, why }) => `  ${where}: ${state}, ${why.replaceAll("\n", "\n    ")}`),
  ].join("\n");
}

function nextText({ next, messages }: Findings): string {
  if (next.length === 0) {
    const wasPassedOver = messages.some(({ standings }) =>
      standings.some(({ state }) => state === "not handled"),
    );
    return wasPassedOver
      ? "What happens next: nothing. A consumer marked as not handled gets its message only if you republish it."
      : "What happens next: nothing. Everything shown here is finished.";
  }
  const steps = next.map(
    ({ of, state, why, next: then }) =>
      `${of}\n  ${state}, ${why.replaceAll("\n", "\n    ")}\n  → ${then.replaceAll("\n", "\n    ")}`,
  );
  return ["What happens next:", ...steps].join("\n");
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
