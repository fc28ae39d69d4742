import {
  allBrokerVariables,
  environmentVariables,
  listChecks,
  type EnvironmentVariable,
} from "../../src/options/index.ts";
import { boundsText, cell } from "./option-text.ts";

const variables: readonly EnvironmentVariable[] = [
  ...Object.values<EnvironmentVariable>(environmentVariables),
  ...allBrokerVariables(),
];

export function environmentPage(): string {
  const rows = variables.map((variable) => {
    const { names, meaning, default: value, secret, advice = "" } = variable;
    const told = [meaning, secret ? "Secret." : "", advice].filter((text) => text !== "").join(" ");
    return row(names.map((name) => `\`${name}\``).join("<br>"), told, value, bounds(variable));
  });
  return `# Environment variables

Where a line has several names, the first that is set wins. An empty value counts as not set. A secret may also be
given as the path of a file, in the variable of the same name with \`_FILE\` at its end: \`DATABASE_URL_FILE\`,
\`SAGABOX_KAFKA_PASSWORD_FILE\`. One line end at the end of such a file is dropped; a file that is empty or cannot be read,
and a secret that is given both ways, are refused. All values are checked at the start, and every problem is reported at
once, never with the value. What is said in code goes before what is said here. A general name such as \`LOG_LEVEL\` or
\`ENCRYPTION_KEY\` whose value we cannot read is taken for one of the application's own. \`.env.example\` has all of them
to copy from. OpenTelemetry has variables of its own, such as \`OTEL_EXPORTER_OTLP_ENDPOINT\`, which its SDK reads.

${row("Variable", "Meaning and advice", "Default", "Bounds")}
${row("---", "---", "---", "---")}
${rows.join("\n")}
`;
}

/** A file to copy from: everything is there, nothing is set. */
export function exampleEnvironment(): string {
  const head = [
    "# Written by scripts/build-docs.ts from the table that the code reads. Copy it to .env and set what you need.",
    "# A secret may also stand in a file: append _FILE to the name and give the path.",
  ];
  const blocks = variables.map(({ names, meaning, default: value, secret, example, advice }) => {
    const others = names.slice(1).map((name) => `Also understood: ${name}.`);
    const about = [meaning, ...others, advice ?? "", `Default: ${value}.`].filter((text) => text !== "");
    const isWord = /^[\w.:-]+$/.test(value) && value !== "none";
    const shown = example ?? (isWord && !secret ? value : "");
    return [...about.map((line) => `# ${line.replaceAll("`", "")}`), `# ${names[0]}=${shown}`].join("\n");
  });
  const foreign = [
    "# Not ours: read by the SDK of OpenTelemetry, when the application starts one.",
    "# OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318",
  ];
  return `${[head.join("\n"), ...blocks, foreign.join("\n")].join("\n\n")}\n`;
}

// What a variable is held to is asked of the code that reads it; the value given for that may be refused.
function bounds(variable: EnvironmentVariable): string {
  const checks = listChecks(() => {
    try {
      variable.read(variable.names[0], "1");
    } catch {
      return;
    }
  });
  return checks.map(boundsText).join("<br>");
}

function row(...cells: string[]): string {
  return `| ${cells.map((text) => (text.includes("\\|") ? text : cell(text))).join(" | ")} |`;
}
