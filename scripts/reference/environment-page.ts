import {
  allBrokerVariables,
  environmentVariables,
  isGeneralName,
  type EnvironmentVariable,
} from "../../src/options/index.ts";
import { boundsText, cell } from "./option-text.ts";

const variables: readonly EnvironmentVariable[] = [
  ...Object.values<EnvironmentVariable>(environmentVariables),
  ...allBrokerVariables(),
];

export function environmentPage(): string {
  const rows = variables.map((variable) => {
    const { names, meaning, secret, advice = "", option } = variable;
    const about = [meaning, secret ? "Secret." : "", advice].filter((text) => text !== "").join(" ");
    return row(
      names.map((name) => `\`${name}\``).join("<br>"),
      about,
      defaultText(variable),
      boundsText(option),
    );
  });
  return `# Environment variables

If a line has several names, the first that is set takes precedence. An empty value counts as not set. Options in code
take precedence over variables. \`.env.example\` lists all variables to copy from.

A secret can also be passed as the path of a file, in the variable with the suffix \`_FILE\`: \`DATABASE_URL_FILE\`,
\`SAGABOX_KAFKA_PASSWORD_FILE\`. One line end at the end of such a file is ignored. A file that is empty or cannot be read
is an error, and so is a secret that is set both ways.

All values are checked at the start. One error reports every problem, never with the value. A \`SAGABOX_*\` variable that
does not exist is reported as a warning, with the name that was probably meant.

General names such as \`BATCH_SIZE\` or \`LOG_LEVEL\` are read by the command \`sagabox\` only, for example by
\`sagabox worker\` and the application that it loads. A bus in a process of your own reads the \`SAGABOX_*\` names and
the addresses of servers, such as \`DATABASE_URL\`. An invalid value under a general name is ignored, because it may belong
to the application.

OpenTelemetry has variables of its own, such as \`OTEL_EXPORTER_OTLP_ENDPOINT\`, which its SDK reads.

${row("Variable", "Meaning and advice", "Default", "Bounds")}
${row("---", "---", "---", "---")}
${rows.join("\n")}
`;
}

/** Writes `.env.example`: every variable as a comment. */
export function exampleEnvironment(): string {
  const head = [
    "# Written by scripts/build-docs.ts from the table that the code reads. Copy it to .env and set what you need.",
    "# A secret can also be in a file: append _FILE to the name and set the path.",
  ];
  const blocks = variables.map((variable) => {
    const { names, meaning, secret, example, advice } = variable;
    const value = defaultText(variable);
    const others = names
      .slice(1)
      .map((name) => `Also read${isGeneralName(name) ? " by the command sagabox" : ""}: ${name}.`);
    const about = [meaning, ...others, advice ?? "", `Default: ${value}.`].filter((text) => text !== "");
    const isWord = /^[\w.:-]+$/.test(value) && value !== "none";
    const shown = example ?? (isWord && !secret ? value : "");
    return [...about.map((line) => `# ${line.replaceAll("`", "")}`), `# ${names[0]}=${shown}`].join("\n");
  });
  const foreign = [
    "# Read by the SDK of OpenTelemetry, if the application starts one.",
    "# OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318",
  ];
  return `${[head.join("\n"), ...blocks, foreign.join("\n")].join("\n\n")}\n`;
}

function defaultText({ option, otherwise = "none" }: EnvironmentVariable): string {
  const { default: value } = option;
  return typeof value === "string" ? value : value === undefined ? otherwise : JSON.stringify(value);
}

function row(...cells: string[]): string {
  return `| ${cells.map((text) => (text.includes("\\|") ? text : cell(text))).join(" | ")} |`;
}
