import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { temporaryDatabase } from "./support/database.ts";
import { program } from "./support/programs.ts";

const root = join(import.meta.dirname, "..");
const examples = readdirSync(join(root, "examples")).filter((name) => /^\d\d-/.test(name));

test("there are examples", () => {
  expect(examples.length).toBeGreaterThanOrEqual(2);
});

test.for(examples)(
  "example %s prints what it promises; the first one twice in a row",
  { timeout: 60_000 },
  async (name) => {
    const { url } = await temporaryDatabase();
    const expected = readFileSync(join(root, "examples", name, "expected-output.txt"), "utf8");
    expect(await run(name, url)).toEqual({ code: 0, output: expected, trouble: "" });
    if (name === examples[0])
      expect(await run(name, url)).toEqual({ code: 0, output: expected, trouble: "" });
  },
);

async function run(name: string, url: string): Promise<{ code: number; output: string; trouble: string }> {
  const main = program(new URL(`../examples/${name}/main.ts`, import.meta.url));
  const child = spawn(process.execPath, [main], {
    cwd: root,
    env: { PATH: process.env["PATH"], DATABASE_URL: url },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [output, trouble] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (trouble += text));
  const [code] = (await once(child, "close")) as [number];
  return { code, output, trouble };
}
