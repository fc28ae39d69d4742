import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { pack } from "./support/packed-app.ts";

const { version } = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../node_modules/pg/package.json"), "utf8"),
) as { version: string };

test("the package and pg install without a warning on this Node", { timeout: 300_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-install-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(
    join(folder, "package.json"),
    JSON.stringify({ name: "app", version: "1.0.0", type: "module" }),
  );
  const words = ["install", pack(folder), `pg@${version}`, "--loglevel=warn", "--no-audit", "--no-fund"];
  const { status, stderr } = spawnSync("npm", words, { cwd: folder, encoding: "utf8" });
  expect(status, stderr).toBe(0);
  expect(stderr).not.toContain("EBADENGINE");
  const code = 'import { createBus } from "sagabox"; console.log(typeof createBus);';
  const run = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
    cwd: folder,
    encoding: "utf8",
  });
  expect(run.stdout.trim(), run.stderr).toBe("function");
});
