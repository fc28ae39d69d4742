import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { z } from "zod";
import { readInterface } from "../../scripts/reference/read-interface.ts";
import { event } from "../../src/message/index.ts";
import { projectRoot } from "./source-file.ts";

const page = readFileSync(join(projectRoot, "docs/reference/configuration.md"), "utf8");

function rowsBelow(heading: string): ReadonlyMap<string, readonly string[]> {
  const [, section = ""] = page.split(`## ${heading}\n`);
  const [table = ""] = section.split(/^## /m, 1);
  const rows = table.split("\n").filter((line) => line.startsWith("| `"));
  return new Map(
    rows.flatMap((row) => {
      const [, names = "", ...cells] = row.split("|").map((cell) => cell.trim());
      return [...names.matchAll(/`(\w+)`/g)].map(([, name = ""]) => [name, cells] as const);
    }),
  );
}

test.each([
  ["bus.run", "src/app/worker.ts", "RunOptions"],
  ["Contracts: event, command, stream", "src/message/contract.ts", "ContractOptions"],
  ["Contracts: event, command, stream", "src/message/contract.ts", "CommandOptions"],
  ["publish", "src/message/message.ts", "PublishOptions"],
  ["request", "src/requests/requests.ts", "RequestOptions"],
  ["republish", "src/outbox/upkeep/republish.ts", "RepublishOptions"],
])("G11: the table of %s has every option of %s, %s", (heading, file, name) => {
  const rows = rowsBelow(heading);
  const declared = readInterface(file, name).map((option) => option.name);
  expect(declared.length).toBeGreaterThan(0);
  expect(declared.filter((option) => !rows.has(option))).toEqual([]);
});

test("G11: the defaults and bounds that stand by hand in the table of contracts hold", () => {
  const of = (more: object) => event("order.placed", { schema: z.object({ id: z.string() }), ...more });
  const rows = rowsBelow("Contracts: event, command, stream");
  const { version, priority, order, onDead } = of({});
  const said = ["version", "priority", "order", "onDead"].map((name) => rows.get(name)?.[0]);
  expect(said).toEqual([String(version), String(priority), `\`"${order}"\``, `\`"${onDead}"\``]);
  for (const wrong of [
    { priority: 10 },
    { priority: -1 },
    { version: 0 },
    { ttl: 0 },
    { maxAttempts: 1_001 },
  ]) {
    expect(() => of(wrong), JSON.stringify(wrong)).toThrowError();
  }
  expect(of({ priority: 9, maxAttempts: 1_000 }).priority).toBe(9);
});
