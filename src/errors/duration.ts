/** A duration with its unit: "250ms", "30s", "5m", "1.5h", "14d". */
export type Duration = `${number}${"ms" | "s" | "m" | "h" | "d"}`;

const unitMs = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Parses a duration into whole milliseconds; undefined if it is not one. A number counts as milliseconds. */
export function parseDuration(value: unknown): number | undefined {
  if (typeof value === "number") return Number.isFinite(value) && value >= 0 ? toWholeMs(value) : undefined;
  if (typeof value !== "string") return undefined;
  const match = /^(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)$/.exec(value);
  if (match === null) return undefined;
  return toWholeMs(Number(match[1]) * unitMs[match[2] as keyof typeof unitMs]);
}

function toWholeMs(ms: number): number | undefined {
  const rounded = Math.round(ms);
  return Number.isSafeInteger(rounded) ? rounded : undefined;
}
