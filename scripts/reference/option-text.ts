import type { Option } from "../../src/options/index.ts";

const units = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
] as const;
// Limits of timers and of whole numbers. They are not shown as bounds.
const limits: readonly number[] = [2_147_483_647, Number.MAX_SAFE_INTEGER];

/** Formats the default of an option; undefined if it has none, or one that is not a plain value. */
export function defaultText({ kind, default: value }: Option): string | undefined {
  if (kind === "duration" && typeof value === "number") return durationText(value);
  if (typeof value === "number") return value.toLocaleString("en");
  if (value === "") return "none";
  return typeof value === "string" || typeof value === "boolean" ? `\`${JSON.stringify(value)}\`` : undefined;
}

/** Formats the values that an option accepts. */
export function boundsText({ kind, bounds }: Option): string {
  const { min = 0, max = Infinity, choices = [], pattern, accepts = "" } = bounds;
  if (kind === "choice") return choices.map((choice) => `\`${choice}\``).join(", ");
  if (kind === "flag") return "`true`, `false`";
  if (kind === "function") return "a function";
  if (kind === "value") return /^(?:an? |\d)| or /.test(accepts) ? accepts : `\`${cell(accepts)}\``;
  const write = kind === "duration" ? durationText : (value: number) => value.toLocaleString("en");
  if (kind === "text") {
    const size = `${write(min)} – ${write(max)} characters`;
    return pattern === undefined ? size : `${size} of \`${cell(pattern.source)}\``;
  }
  return limits.includes(max) || max === Infinity ? `from ${write(min)}` : `${write(min)} – ${write(max)}`;
}

function durationText(ms: number): string {
  const [unit, size] = units.find(([, length]) => ms >= length && ms % length === 0) ?? ["ms", 1];
  return ms === 0 ? "0" : `${(ms / size).toLocaleString("en")} ${unit}`;
}

/** Escapes the bars of a text, which would end a table cell. */
export function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
