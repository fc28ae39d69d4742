import { readFileSync } from "node:fs";

let version: string | undefined;

/** The version in package.json, which lies two folders up both in the sources and in the built package. */
export function packageVersion(): string {
  if (version !== undefined) return version;
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  const parsed = JSON.parse(text) as { version?: unknown };
  version = typeof parsed.version === "string" ? parsed.version : "unknown";
  return version;
}
