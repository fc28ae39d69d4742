import { type Command, exitCodes } from "../../src/cli/command.ts";
import { allCommands } from "../../src/cli/run-cli.ts";

/** The reference of the command line, from the commands themselves. */
export async function cliPage(): Promise<string> {
  const commands = await allCommands();
  const codes = exitCodes.map(({ code, meaning }) => `| ${code} | ${meaning} |`);
  const list = commands.map(({ name, summary }) => `| [\`${name}\`](#sagabox-${name}) | ${cell(summary)} |`);
  return `# The command line

\`sagabox <command>\`. How to work with it is in [the guide](../guides/command-line.md); this page is made from the commands
themselves, and \`sagabox help <command>\` prints the same.

| Command | What for |
| --- | --- |
${list.join("\n")}

## Exit codes

| Code | Meaning |
| --- | --- |
${codes.join("\n")}

A command that runs until it is stopped ends with 0 when it was stopped cleanly. A signal that ends the process at once
leaves 130 (SIGINT) or 143 (SIGTERM), as everywhere.

${commands.map(section).join("\n\n")}
`;
}

function section({ name, summary, usage, details, options }: Command): string {
  const rows = Object.entries(options).map(
    ([option, { value, help }]) =>
      `| \`--${option}${value === undefined ? "" : ` ${value}`}\` | ${cell(help)} |`,
  );
  const table = rows.length === 0 ? [] : ["", "| Option | Meaning |", "| --- | --- |", ...rows];
  return [
    `## sagabox ${name}`,
    "",
    summary,
    "",
    "```text",
    ...usage.map((line) => `sagabox ${line}`),
    "```",
    "",
    "```text",
    details,
    "```",
    ...table,
  ].join("\n");
}

function cell(text: string): string {
  return text.replaceAll("|", "\\|").replaceAll("<", "&lt;");
}
