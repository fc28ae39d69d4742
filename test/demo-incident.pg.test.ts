import { expect, test } from "vitest";
import { runIncident } from "../scripts/incident/run-incident.ts";
import { temporaryDatabase } from "./support/database.ts";

test("the incident is played with the real tools: two causes found, one repaired and replayed, one discarded", async () => {
  const { url } = await temporaryDatabase();
  const lines: string[] = [];
  await runIncident({ url, say: (line) => void lines.push(line), pause: () => Promise.resolve() });
  const output = lines.join("\n");
  const commands = lines.filter((line) => line.startsWith("\n$ sagabox ")).map((line) => line.split(" ")[2]);
  expect(commands).toEqual([
    "status",
    "dlq",
    "dlq",
    "explain",
    "dlq",
    "dlq",
    "dlq",
    "status",
    "verify",
    "audit",
  ]);
  expect(output).toContain("24 orders have no invoice.");
  expect(output).toMatch(/toUpperCase/);
  expect(output).toContain("There is no currency ZZZ.");
  expect(output).toContain("healthy");
  expect(output).toContain("ticket 42");
  expect(output).toContain("56 invoices for 56 orders, 0 of them written twice.");
  expect(output).toMatch(/exit code 4/);
  expect(output).not.toMatch(/exit code [1235]/);
}, 60_000);
