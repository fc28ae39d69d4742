/** What the requirements call the cases of the transport suite; all of them prove that there is one (B1). */
const rows: Readonly<Record<string, string>> = {
  "each message of a batch gets an outcome of its own, in the order given": "B1, B10",
  "publishing to a topic that nobody reads is no failure": "B1, B10",
  "every group gets a copy of its own": "B1, B7",
  "competing members share the messages of a group, each to one of them, in order per key": "B1, B7",
};

export function caseTitle(name: string, ...more: readonly string[]): string {
  return `${[rows[name] ?? "B1", ...more].join(", ")}: ${name}`;
}
