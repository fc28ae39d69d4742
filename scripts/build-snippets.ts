import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { format } from "prettier";

const root = join(import.meta.dirname, "..");

/** Pages whose code is cut from files that run. */
export const pages = [
  "README.md",
  "ARCHITECTURE.md",
  "docs/tutorial/first-message.md",
  "docs/tutorial/first-saga.md",
  "docs/guides/publishing.md",
  "docs/guides/publish-from-sql.md",
  "docs/guides/consuming.md",
  "docs/guides/requests.md",
  "docs/guides/choreography.md",
  "docs/guides/compensation.md",
  "docs/guides/saga-timeouts.md",
  "docs/guides/sagas-and-messages.md",
  "docs/guides/testing-sagas.md",
  "docs/guides/dead-letters.md",
  "docs/guides/large-payloads.md",
  "docs/guides/audit.md",
  "docs/guides/doctor.md",
  "docs/guides/finding-a-message.md",
  "docs/guides/privacy.md",
  "docs/guides/recipes.md",
  "docs/guides/running.md",
  "docs/guides/serverless.md",
  "docs/guides/metrics.md",
  "docs/guides/tracing.md",
  "docs/guides/nats.md",
  "docs/guides/kafka.md",
  "docs/guides/rabbitmq.md",
  "docs/guides/transports.md",
  "docs/guides/cloud-events.md",
];

const snippet = /<!-- snippet: (?<path>\S+?)#(?<region>\S+) -->\n\n```(?<language>ts|sql|python)\n[^]*?```/g;

/** The page with every snippet as its file has it now. */
export async function withSnippets(markdown: string): Promise<string> {
  let [page, end] = ["", 0];
  for (const match of markdown.matchAll(snippet)) {
    const { path = "", region = "", language = "" } = match.groups ?? {};
    const text = cut(path, region);
    const code =
      language === "ts" ? await format(text, { parser: "typescript", printWidth: 110 }) : `${text}\n`;
    page += `${markdown.slice(end, match.index)}<!-- snippet: ${path}#${region} -->\n\n\`\`\`${language}\n${code}\`\`\``;
    end = match.index + match[0].length;
  }
  return page + markdown.slice(end);
}

function cut(path: string, region: string): string {
  const lines = readFileSync(join(root, path), "utf8").split("\n");
  const isMark = (line: string, mark: string): boolean =>
    /^\s*(\/\/|--|#) #/.test(line) && line.trim().endsWith(` #${mark} ${region}`);
  const first = lines.findIndex((line) => isMark(line, "region"));
  const last = lines.findIndex((line) => isMark(line, "endregion"));
  if (first === -1 || last < first) throw new Error(`${path} has no region "${region}".`);
  return lines.slice(first + 1, last).join("\n");
}

if (process.argv[1] === import.meta.filename) {
  for (const path of pages) {
    const file = join(root, path);
    writeFileSync(file, await withSnippets(readFileSync(file, "utf8")));
  }
}
