import { readFileSync } from "node:fs";

let version: string | undefined;

/** Returns the version in package.json, which is two folders up in both the sources and the built package. */
export function packageVersion(): string {
  if (version !== undefined) return version;
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  const parsed = JSON.parse(text) as { version?: unknown };
  version = typeof parsed.version === "string" ? parsed.version : "unknown";
  return version;
}
