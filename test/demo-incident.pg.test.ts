import { expect, test } from "vitest";
import { runIncident } from "../scripts/incident/run-incident.ts";
import { temporaryDatabase } from "./support/database.ts";

test("the incident is played with the real tools: two causes found, one repaired and replayed, one discarded", async () => {
  const { url } = await temporaryDatabase();
  const lines: string[] = [];
  await runIncident({ url, say: (line) => void lines.push(line), pause: () => Promise.resolve() });
  const told = lines.join("\n");
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
  expect(told).toContain("24 orders have no invoice.");
  expect(told).toMatch(/toUpperCase/);
  expect(told).toContain("There is no currency ZZZ.");
  expect(told).toContain("healthy");
  expect(told).toContain("ticket 42");
  expect(told).toContain("56 invoices for 56 orders, 0 of them written twice.");
  expect(told).toMatch(/exit code 4/);
  expect(told).not.toMatch(/exit code [1235]/);
}, 60_000);
