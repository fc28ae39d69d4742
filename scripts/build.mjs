// src → dist: one file per source file, with declarations and maps that lead back to the sources.
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const compiler = join(root, "node_modules/typescript/bin/tsc");
const bin = join(root, "dist/cli/main.js");

rmSync(join(root, "dist"), { recursive: true, force: true });
const { status } = spawnSync(process.execPath, [compiler, "-p", "tsconfig.build.json"], {
  cwd: root,
  stdio: "inherit",
});
if (existsSync(bin)) chmodSync(bin, 0o755);
process.exit(status ?? 1);
