import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseCommand } from "../../src/cli/command.ts";
import { allCommands } from "../../src/cli/run-cli.ts";
import { parseCommands, readRunbook } from "../support/runbook.ts";
import { filesBelow, projectRoot } from "./source-file.ts";

const commands = await allCommands();
const names = readdirSync(join(projectRoot, "docs/runbooks"))
  .filter((file) => file.endsWith(".md") && file !== "README.md")
  .map((file) => file.slice(0, -3));

test("G7: every runbook is in the index and goes the same way", () => {
  const index = readRunbook("README");
  expect(names.length).toBeGreaterThan(10);
  for (const name of names) {
    expect(index).toContain(`](${name}.md)`);
    if (name === "replay") continue; // numbered steps of its own, rehearsed with the tool
    const headings = [...readRunbook(name).matchAll(/^## (.+)$/gm)].map(([, heading]) => heading);
    expect(headings, name).toEqual(
      expect.arrayContaining(["Symptom", "What it means", "First look", "Decide"]),
    );
    expect(headings.at(-1), name).toBe("Afterwards");
  }
});

test("G7: the commands of the runbooks exist, with the options they use", () => {
  for (const name of [...names, "README"]) {
    for (const [program, command = "", ...args] of parseCommands(readRunbook(name))) {
      expect(program, name).toBe("sagabox");
      const found = commands.find((candidate) => candidate.name === command);
      if (found === undefined) throw new Error(`${name}: there is no command "${command}".`);
      expect(() => parseCommand(found, args), `${name}: sagabox ${command} ${args.join(" ")}`).not.toThrow();
    }
  }
});

test("G5, G7: every alert leads to a runbook, and every runbook of an alert names it", () => {
  const rules = filesBelow("ops", ".yaml").concat(filesBelow("ops", ".yml"));
  const linked = rules.flatMap(({ text }) =>
    [
      ...text.matchAll(/- alert: (\w+)\n(?:(?!- alert: )[^])*?runbook_url: docs\/runbooks\/([\w-]+)\.md/g),
    ].map(([, alert = "", runbook = ""]) => ({ alert, runbook })),
  );
  expect(linked.length).toBeGreaterThan(10);
  const silent = linked.filter(({ alert, runbook }) => {
    const page = readFileSync(join(projectRoot, `docs/runbooks/${runbook}.md`), "utf8");
    return !page.includes(`\`${alert}\``);
  });
  expect(silent).toEqual([]);
});

test("G13: what the checklist says doctor looks at, doctor looks at", () => {
  const checks = filesBelow("src/admin/doctor", ".ts")
    .map(({ text }) => text)
    .join("\n");
  const page = readFileSync(join(projectRoot, "docs/guides/production-checklist.md"), "utf8");
  const claimed = [...page.matchAll(/^\| `([^`]+)` /gm)].map(([, name = ""]) => name);
  expect(claimed.length).toBeGreaterThan(15);
  expect(claimed.filter((name) => !checks.includes(`"${name}"`))).toEqual([]);
});
