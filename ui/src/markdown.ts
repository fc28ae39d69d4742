// Pages as Markdown, for a hand-over in a chat or a ticket. Times are in UTC.

/** A cell or a line: without line breaks and without marks that would end a table cell. */
function inline(text: string): string {
  return text.replaceAll(/\s+/g, " ").replaceAll("|", String.raw`\|`);
}

export function mdTable(
  titles: readonly string[],
  rows: readonly (readonly (string | number | null)[])[],
): string {
  const line = (cells: readonly (string | number | null)[]): string =>
    `| ${cells.map((cell) => inline(String(cell ?? "–"))).join(" | ")} |`;
  return [line(titles), line(titles.map(() => "---")), ...rows.map(line)].join("\n");
}

export function mdFacts(facts: readonly (readonly [string, string | number | null | undefined])[]): string {
  return facts
    .filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => `- **${name}**: ${inline(String(value))}`)
    .join("\n");
}

/** A page: its title, its parts, and where it came from. */
export function mdPage(title: string, ...parts: string[]): string {
  const origin = `_${location.href} · ${new Date().toISOString()}_`;
  return [`## ${inline(title)}`, ...parts.filter(Boolean), origin].join("\n\n");
}
