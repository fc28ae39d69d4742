import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { inject } from "vitest";
import type { TestProject } from "vitest/node";

const root = join(import.meta.dirname, "..", "..");

/** Where Node finds one of test/tsconfig.programs.json compiled, given the address of its source. */
export function program(source: URL): string {
  return join(inject("programs"), relative(root, fileURLToPath(source)).replace(/\.ts$/, ".js"));
}

declare module "vitest" {
  interface ProvidedContext {
    /** The folder of the programs that tests start, compiled. */
    readonly programs: string;
  }
}

/**
 * Compiles the programs that tests start once per run, the way the package is built. A loader that translates them
 * again at every start takes several times as long as the start itself, and there are a hundred of those.
 */
export default function setup(project: TestProject): () => void {
  const home = join(root, "node_modules", ".cache");
  mkdirSync(home, { recursive: true });
  const folder = mkdtempSync(join(home, "sagabox-programs-"));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  const compiler = join(root, "node_modules", "typescript", "bin", "tsc");
  const words = [compiler, "-p", join(root, "test", "tsconfig.programs.json"), "--outDir", folder];
  const { status, stdout, stderr } = spawnSync(process.execPath, words, { encoding: "utf8" });
  if (status !== 0) {
    remove();
    throw new Error(`The programs that tests start do not compile:\n${stdout}${stderr}`);
  }
  writeFileSync(join(folder, "package.json"), JSON.stringify(ownPackage()));
  project.provide("programs", folder);
  return remove;
}

/** The package under its own name, with what was just compiled behind it. */
function ownPackage(): object {
  const { name, version, type, exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly name: string;
    readonly version: string;
    readonly type: string;
    readonly exports: Readonly<Record<string, string | { readonly "sagabox:source": string }>>;
  };
  const compiled = Object.entries(exports).flatMap(([entry, target]) =>
    typeof target === "string" ? [] : [[entry, target["sagabox:source"].replace(/\.ts$/, ".js")]],
  );
  return { name, version, type, exports: Object.fromEntries(compiled) as object };
}
