/** `problem`: broken, or soon to be. `advice`: works, but could be better. `fine`: checked, no finding. */
export type Severity = "problem" | "advice" | "fine";

export interface Diagnosis {
  /** Name of the check, in one or two words. */
  readonly check: string;
  readonly severity: Severity;
  readonly seen: string;
  /** Why it matters; null for `fine`. */
  readonly why: string | null;
  /** The command or SQL that fixes it; null for `fine`. */
  readonly fix: string | null;
}

export function problem(check: string, seen: string, why: string, fix: string): Diagnosis {
  return { check, severity: "problem", seen, why, fix };
}

export function advice(check: string, seen: string, why: string, fix: string): Diagnosis {
  return { check, severity: "advice", seen, why, fix };
}

export function fine(check: string, seen: string): Diagnosis {
  return { check, severity: "fine", seen, why: null, fix: null };
}

/** Formats a duration in the largest unit that fits. */
export function durationText(ms: number): string {
  const units: readonly (readonly [number, string])[] = [
    [86_400_000, "d"],
    [3_600_000, "h"],
    [60_000, "min"],
    [1_000, "s"],
  ];
  const [size, name] = units.find(([unit]) => ms >= unit) ?? [1, "ms"];
  return `${Math.round(ms / size)} ${name}`;
}

export function bytesText(count: number): string {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let [left, unit] = [count, 0];
  while (left >= 1_024 && unit < units.length - 1) [left, unit] = [left / 1_024, unit + 1];
  return `${left >= 10 || unit === 0 ? Math.round(left) : left.toFixed(1)} ${units[unit] ?? ""}`;
}
