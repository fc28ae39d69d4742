import type { OptionCheck } from "../../src/options/index.ts";

const units = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
] as const;
// Beyond these nobody is told of a bound: they are what a timer or a whole number can hold.
const endless: readonly number[] = [2_147_483_647, Number.MAX_SAFE_INTEGER];

/** The value an option has when nobody says anything, as people write it. */
export function defaultText({ kind, value }: OptionCheck): string {
  if (kind === "duration" && typeof value === "number") return spanText(value);
  if (typeof value === "number") return value.toLocaleString("en");
  return value === "" ? "none" : `\`${JSON.stringify(value)}\``;
}

/** What a parser holds an option to. */
export function boundsText({ kind, min = 0, max = Infinity, choices, pattern }: OptionCheck): string {
  if (kind === "choice") return (choices ?? []).map((choice) => `\`${choice}\``).join(", ");
  if (kind === "flag") return "`true`, `false`";
  const write = kind === "duration" ? spanText : (value: number) => value.toLocaleString("en");
  const isEndless = endless.includes(max) || max === Infinity;
  if (kind === "text") {
    const size = `${write(min)} – ${write(max)} characters`;
    return pattern === undefined ? size : `${size} of \`${cell(pattern.source)}\``;
  }
  return isEndless ? `from ${write(min)}` : `${write(min)} – ${write(max)}`;
}

function spanText(ms: number): string {
  const [unit, size] = units.find(([, length]) => ms >= length && ms % length === 0) ?? ["ms", 1];
  return ms === 0 ? "0" : `${(ms / size).toLocaleString("en")} ${unit}`;
}

/** A bar would end the cell of a table. */
export function cell(text: string): string {
  return text.replaceAll("|", "\\|");
}
