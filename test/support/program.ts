import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { inject } from "vitest";

const root = join(import.meta.dirname, "..", "..");

/** Where Node finds one of test/tsconfig.programs.json compiled, given the address of its source. */
export function program(source: URL): string {
  return join(inject("programs"), relative(root, fileURLToPath(source)).replace(/\.ts$/, ".js"));
}
