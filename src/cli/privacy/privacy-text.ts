import type { Privacy } from "./with-privacy.ts";

/** The keys and what was done with them, for people. */
export function privacyText(seen: Awaited<ReturnType<Privacy["status"]>>): string {
  const { currentKey, keys, destroyed, erasures, unswept, holds, cacheTtlMs } = seen;
  const wrapped = Object.entries(keys).map(([name, count]) => `${count} by ${name}`);
  const facts: readonly (readonly [string, string])[] = [
    ["current key", currentKey],
    [
      "data keys",
      `${wrapped.length === 0 ? "none yet" : `wrapped: ${wrapped.join(", ")}`}; ${destroyed} destroyed`,
    ],
    ["erasures", `${erasures}, of which ${unswept} are not swept yet (unswept)`],
    ["holds", String(holds)],
    ["key cache", `other processes forget a destroyed key within ${cacheTtlMs / 1_000} s`],
  ];
  return facts.map(([name, text]) => `${name.padEnd(11)}  ${text}`).join("\n");
}
