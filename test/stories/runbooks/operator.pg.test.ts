import { readdirSync } from "node:fs";
import { expect, test } from "vitest";
import { rolesHarness } from "../../support/roles-harness.ts";
import { readRunbook } from "../../support/runbook.ts";

const pages = readdirSync(new URL("../../../docs/runbooks", import.meta.url)).map((file) =>
  file.replace(/\.md$/, ""),
);
const fill: Readonly<Record<string, string>> = { day: "2026-11-16" };

function parseStatements(page: string): readonly string[] {
  const blocks = [...readRunbook(page).matchAll(/^```sql\n([^]*?)^```/gm)];
  return blocks.map(([, sql = ""]) =>
    sql.replace(/<([a-z-]+)>/g, (_, name: string) => fill[name] ?? "nothing"),
  );
}

test("G7, G10: an operator may run the SQL of every runbook; only the view with payloads is the owner's", async () => {
  const operator = await (await rolesHarness()).as("operator");
  const refused: string[] = [];
  let tried = 0;
  for (const page of pages) {
    for (const sql of parseStatements(page)) {
      tried += 1;
      await operator.query(sql).catch((error: unknown) => refused.push(`${page}: ${String(error)}`));
    }
  }
  expect(tried).toBeGreaterThanOrEqual(9);
  expect(refused).toEqual(["archive: error: permission denied for view outbox_events"]);
});

test.each(pages)("every kubectl command of the runbook %s names its namespace", (page) => {
  const commands = readRunbook(page).match(/^kubectl .*$/gm) ?? [];
  expect(commands.filter((command) => !/^kubectl -n \S+ /.test(command))).toEqual([]);
});
