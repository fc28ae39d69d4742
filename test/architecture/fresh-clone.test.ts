import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

const script = join(import.meta.dirname, "..", "..", "scripts", "run.mjs");

/** A clone where nothing is installed yet. Its one dependency asks for a Node that does not exist. */
function freshClone(notLocked: Readonly<Record<string, string>> = {}): string {
  const root = mkdtempSync(join(tmpdir(), "sagabox-clone-"));
  onTestFinished(() => rmSync(root, { recursive: true, force: true }));
  for (const folder of ["scripts", "tsx"]) mkdirSync(join(root, folder));
  cpSync(script, join(root, "scripts", "run.mjs"));
  writeFileSync(join(root, "scripts", "sagabox.mjs"), 'console.log("it runs");\n');
  const tool = {
    name: "tsx",
    version: "1.0.0",
    type: "module",
    exports: "./index.js",
    engines: { node: ">=999" },
  };
  writeFileSync(join(root, "tsx", "index.js"), "");
  writeFileSync(join(root, "tsx", "package.json"), JSON.stringify(tool));
  const own = { name: "clone", version: "1.0.0" };
  const devDependencies = { tsx: "file:tsx" };
  writeFileSync(
    join(root, "package.json"),
    JSON.stringify({ ...own, devDependencies: { ...devDependencies, ...notLocked } }),
  );
  const packages = {
    "": { ...own, devDependencies },
    "node_modules/tsx": { resolved: "tsx", link: true },
    tsx: { version: "1.0.0", dev: true, engines: tool.engines },
  };
  const lock = { ...own, lockfileVersion: 3, requires: true, packages };
  writeFileSync(join(root, "package-lock.json"), JSON.stringify(lock));
  return root;
}

function run(root: string): { status: number | null; output: string } {
  const { npm_execpath: _, ...env } = process.env;
  const args = [join(root, "scripts", "run.mjs"), "sagabox"];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd: root, env, encoding: "utf8" });
  return { status, output: stdout + stderr };
}

test("the first command on a fresh clone installs what it needs, without a warning", () => {
  const { status, output } = run(freshClone());
  expect(output).toMatch(/Installing dependencies .* node_modules is missing[^]*it runs/);
  expect(output).not.toMatch(/warn/i);
  expect(status, output).toBe(0);
});

test("an install that fails says why in full, and nothing is run after it", () => {
  const { status, output } = run(freshClone({ other: "file:scripts" }));
  expect(output).toMatch(/npm error[^]*package\.json and package-lock\.json[^]*in sync/i);
  expect(output).not.toContain("it runs");
  expect(status).toBe(1);
});
