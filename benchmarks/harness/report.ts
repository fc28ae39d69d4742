import { reaches, type Result } from "./result.ts";

const COLUMNS = ["id", "ratio", "spread", "first", "aim", "", "what"] as const;

/** The table for people. */
export function table(
  results: readonly Result[],
  leftOut: readonly { readonly what: string; readonly reason: string }[],
): string {
  const rows = results.map(toRow);
  const widths = COLUMNS.map((title, i) => Math.max(title.length, ...rows.map((row) => row[i]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join("  ")
      .trimEnd();
  return [
    line(COLUMNS),
    line(widths.map((width) => "-".repeat(width))),
    ...rows.flatMap((row, i) => [line(row), ...formatDetail(results[i])]),
    ...leftOut.map(({ what, reason }) => `${what} is left out: ${reason}`),
  ].join("\n");
}

function toRow(one: Result): string[] {
  const sign = one.better === "higher" ? ">=" : "<=";
  return [
    one.id,
    String(one.ratio),
    `[${one.spread.join(" - ")}]`,
    one.first === null ? "-" : `${sign} ${one.first}`,
    one.aim === null ? "-" : `${sign} ${one.aim}`,
    verdict(one),
    one.name,
  ];
}

function verdict({ ok, ratio, first, aim, better }: Result): string {
  if (!ok) return "MISSED";
  if (first === null) return "";
  return aim !== null && reaches(ratio, aim, better) ? "aim" : "ok";
}

function formatDetail(one: Result | undefined): string[] {
  const entries = Object.entries(one?.detail ?? {}).map(([name, value]) => `${name} ${value}`);
  if (one?.room !== undefined) entries.push(`sketch ${one.room.here}, in the list ${one.room.there}`);
  return entries.length === 0 ? [] : [`    ${entries.join(" · ")}`];
}
