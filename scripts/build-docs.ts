import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { format } from "prettier";
import { placeOrder } from "../examples/03-order-saga/order-saga.ts";
import { orderFlow } from "../examples/05-order-choreography/order-flow.ts";
import { roleNames, roles, type Extent } from "../src/admin/index.ts";
import { flowDiagram } from "../src/flow/index.ts";
import { cloudEventAttributes } from "../src/message/index.ts";
import { messageStates, moves, stateDiagram, type MessageState, type Move } from "../src/outbox/index.ts";
import { sagaDiagram, sagaStatuses, statusDiagram, statusMoves, type SagaStatus } from "../src/saga/index.ts";
import { metricCatalogue, telemetryEvents, type TelemetryEvent } from "../src/telemetry/index.ts";
import { cliPage } from "./reference/cli-page.ts";
import { environmentPage, exampleEnvironment } from "./reference/environment-page.ts";
import { optionTables } from "./reference/option-tables.ts";

const root = join(import.meta.dirname, "..");

/** The pages that are made from code, by their path from the root. */
export async function generatedDocs(): Promise<Readonly<Record<string, string>>> {
  return {
    "docs/reference/telemetry.md": await page(telemetry()),
    "docs/reference/environment.md": await page(environmentPage()),
    ".env.example": exampleEnvironment(),
    "docs/reference/cli.md": await page(await cliPage()),
    "docs/reference/configuration.md": await withTables("docs/reference/configuration.md", optionTables()),
    "docs/reference/state-machines.md": await page(stateMachines()),
    "docs/guides/choreography.md": withDiagram(
      "docs/guides/choreography.md",
      "order",
      flowDiagram(orderFlow),
    ),
    "docs/guides/operating-sagas.md": withDiagram(
      "docs/guides/operating-sagas.md",
      "order-saga",
      sagaDiagram(placeOrder.definition),
    ),
    "docs/reference/roles.md": await page(rolesPage()),
    "docs/guides/database-roles.md": await withTable("docs/guides/database-roles.md", "roles", roleTable()),
    "docs/guides/cloud-events.md": await withTable("docs/guides/cloud-events.md", "attributes", attributes()),
  };
}

function telemetry(): string {
  const events = Object.entries<TelemetryEvent>(telemetryEvents).map(
    ([name, { level, milder, always, meaning, fields }]) => {
      const list = Object.entries(fields).map(
        ([field, { meaning: text }]) => `- \`${snakeCase(field)}\`: ${text}`,
      );
      const mildly = milder === undefined ? "" : `, as **${milder.level}** when ${milder.when}`;
      return `### ${name}\n\n${meaning} Logged as **${level}**${mildly}${always === true ? ", each one" : ""}.\n\n${list.join("\n")}`;
    },
  );
  const metrics = Object.entries(metricCatalogue).map(([name, { kind, labels, help }]) =>
    row(`\`${name}\``, kind, labels.map((label) => `\`${label}\``).join(", "), help),
  );
  return `# Telemetry

sagabox emits the events below to its observers. Log lines and metrics are made from these events only. No event contains
a payload. Names and fields are public API.

## Metrics

The worker serves metrics at \`/metrics\` in the Prometheus text format. A metric has at most 500 series; further label
values are counted as \`other\`. Labels never contain ids, keys or personal data.

${row("Metric", "Kind", "Labels", "Meaning")}
${row("---", "---", "---", "---")}
${metrics.join("\n")}

## Events

A log line is one JSON object with \`time\`, \`level\`, \`event\`, then \`trace_id\` and \`saga_id\` if the event belongs to a
message that has them, then the fields below. Events logged "each one" (lifecycles, retries, dead letters) and debug lines are
always written. Of other events, at most five lines with the same event, type and cause are written in ten seconds. The last line
that was left out is written at the end of that time, with the number of those before it in \`suppressed\`. On a terminal the
line is formatted for reading.

${events.join("\n\n")}
`;
}

const stateMeanings: Readonly<Record<MessageState, string>> = {
  pending: "Waits in the outbox, due or scheduled, and has never failed.",
  optimistic: "Is leased to the process that wrote it, which sends it right after its commit.",
  claimed: "Is due, and its lane is leased to a relay.",
  sent: "Was confirmed by the transport. Only a republish by an operator leads out of it.",
  failed: "Was rejected by the transport and waits for its next attempt.",
  dead_letter:
    "Was given up and waits for a person, who replays or discards it. Discarded, it stays so while its letter is kept.",
};

const guardMeanings: Readonly<Record<NonNullable<Move["guard"]>, string>> = {
  "attempts-exhausted": "all attempts are used up",
  due: "its time has come, by the database clock",
};

function stateMachines(): string {
  const states = messageStates.map((state) => row(`\`${state}\``, stateMeanings[state]));
  const list = moves.map((move: Move) =>
    row(`\`${move.name}\``, move.from, move.to, move.guard === undefined ? "" : guardMeanings[move.guard]),
  );
  return `# State machines

## A message in the outbox

One table in the code (\`src/outbox/message-state.ts\`) is the only source of the states and moves below. The database
holds a generated copy in \`outbox_move\`. It refuses an update of an outbox row unless the change, the state before and the
state after fit one of these moves. \`pending\`, \`claimed\` and \`failed\` are not stored: they follow from the row, its lane
and the clock, so a crash leaves nothing to repair. A message whose lease expires is pending again.

The database checks the change of a row, not the session that makes it. Settling a row as sent deletes it, and fences and
[roles](roles.md) protect that: only senders may delete rows. In code, \`canTransition\`, \`nextStates\` and
\`transition\` (with its guards) answer from the same table. To react to a move, use \`observers\` and \`onDeadLetter\` of
[createBus](configuration.md).

\`\`\`mermaid
${stateDiagram()}
\`\`\`

${row("State", "Meaning")}
${row("---", "---")}
${states.join("\n")}

${row("Move", "From", "To", "Only when")}
${row("---", "---", "---", "---")}
${list.join("\n")}

${sagaMachine()}`;
}

const statusMeanings: Readonly<Record<SagaStatus, string>> = {
  started: "Written, and its first steps are being decided. Lasts one transaction at most.",
  running: "Goes forward, and could still be undone.",
  completing: "Is past its pivot and only goes forward.",
  compensating: "Goes backward: what was done or may have been done is being undone.",
  compensated: "Everything is undone. An end.",
  completed: "Every step is done. An end.",
  failed: "Is parked with an open incident, until a person decides. Not an end.",
};

function sagaMachine(): string {
  return `## An instance of a saga

The status is never set by itself: it follows from the state of the steps (\`src/saga/decide.ts\`), and is stored beside it
for those who search. \`src/saga/state.ts\` lists every move. Each is a line of \`saga_audit_log\`, with its cause.

\`\`\`mermaid
${statusDiagram()}
\`\`\`

${row("Status", "Meaning")}
${row("---", "---")}
${sagaStatuses.map((status) => row(`\`${status}\``, statusMeanings[status])).join("\n")}

${row("From", "To", "When")}
${row("---", "---", "---")}
${statusMoves.map(({ from, to, when }) => row(from, to, when)).join("\n")}
`;
}

/** A page written by hand, with the picture that is made from code as the code has it now. */
function withDiagram(path: string, name: string, diagram: string): string {
  const place = new RegExp(`(<!-- diagram: ${name} -->\\n\\n\`\`\`mermaid\\n)[^]*?(\`\`\`)`);
  return readFileSync(join(root, path), "utf8").replace(
    place,
    (_, open, close) => `${open}${diagram}\n${close}`,
  );
}

async function withTable(path: string, name: string, rows: readonly string[]): Promise<string> {
  return withTables(path, { [name]: rows });
}

async function withTables(
  path: string,
  tables: Readonly<Record<string, readonly string[]>>,
): Promise<string> {
  let text = readFileSync(join(root, path), "utf8");
  for (const [name, rows] of Object.entries(tables)) {
    const place = new RegExp(`(<!-- table: ${name} -->\\n)[^]*?(\\n<!-- end of table -->)`);
    const table = await format(rows.join("\n"), { parser: "markdown", printWidth: 110 });
    text = text.replace(place, (_, open, close) => `${open}\n${table}${close}`);
  }
  return text;
}

function rolesPage(): string {
  return `# Database roles

\`sagabox roles sql\` prints the SQL that creates these roles and grants their rights. How to set them up is in
[the guide](../guides/database-roles.md).

## Roles

${roleTable().join("\n")}

## Rights

\`select (id)\` is a right on that column alone. A role also has the rights of the roles in its column "Is also".

${rightsTable().join("\n")}
`;
}

function roleTable(): readonly string[] {
  const rows = roleNames.map((name) => {
    const { who, includes, still } = roles[name];
    const also = includes.map((other) => `\`${other}\``).join(", ");
    return row(`\`${name}\``, who, also, still);
  });
  return [
    row("Role", "Who connects as it", "Is also", "With stolen credentials an attacker can"),
    row("---", "---", "---", "---"),
    ...rows,
  ];
}

function rightsTable(): readonly string[] {
  const formatExtent = (columns: Extent): string => (columns === "all" ? "" : ` (${columns.join(", ")})`);
  const rows = roleNames.flatMap((name) =>
    roles[name].grants.map(({ on, can, why, only }) => {
      const rights = (Object.entries(can) as [string, Extent][]).map(
        ([right, of]) => `${right}${formatExtent(of)}`,
      );
      const when =
        only === undefined ? "" : ` (only \`--with-${only === "optimistic" ? "optimistic-send" : only}\`)`;
      return row(`\`${name}\``, `\`${on}\``, rights.join(", "), `${why}${when}`);
    }),
  );
  return [row("Role", "On", "May", "Why"), row("---", "---", "---", "---"), ...rows];
}

function attributes(): readonly string[] {
  const rows = Object.entries(cloudEventAttributes).map(([name, { origin, meaning }]) =>
    row(`\`${name}\``, meaning, origin),
  );
  return [row("Attribute", "Meaning", "Named by"), row("---", "---", "---"), ...rows];
}

function row(...cells: string[]): string {
  return `| ${cells.join(" | ")} |`;
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function page(markdown: string): Promise<string> {
  return format(markdown.replace("\n\n", "\n\n<!-- Written by scripts/build-docs.ts. Do not edit. -->\n\n"), {
    parser: "markdown",
    printWidth: 110,
  });
}

if (process.argv[1] === import.meta.filename) {
  for (const [path, text] of Object.entries(await generatedDocs())) writeFileSync(join(root, path), text);
}
