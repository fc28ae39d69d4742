import { isSagaboxError } from "../errors/index.ts";
import { printable, printableJson, withoutPasswords } from "../telemetry/index.ts";

type Cell = string | number | boolean | null;

/** Renders rows as columns under headings. Escape sequences in cells are made harmless; null is shown as a dash. */
export function table(headings: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const cells = rows.map((row) => row.map((cell) => (cell === null ? "–" : printable(String(cell)))));
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...cells.map((row) => row[column]?.length ?? 0)),
  );
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd();
  return [line(headings), line(widths.map((width) => "─".repeat(width))), ...cells.map(line)].join("\n");
}

export function jsonText(value: unknown): string {
  return printableJson(value);
}

/** Renders an error as its message and code, without passwords. With `withStack` the stack and cause follow. */
export function fullErrorText(error: unknown, withStack: boolean): string {
  const text = isSagaboxError(error) ? `${error.message} [${error.code}]` : plainText(error);
  const stack = withStack && error instanceof Error ? `\n${error.stack ?? ""}${causeText(error.cause)}` : "";
  return safeLines(`${text}${stack}`);
}

/** Removes control characters and passwords from every line. */
export function safeLines(text: string): string {
  return text
    .split("\n")
    .map((line) => printable(withoutPasswords(line)))
    .join("\n");
}

function plainText(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

function causeText(cause: unknown): string {
  return cause instanceof Error ? `\nCaused by: ${cause.stack ?? cause.message}` : "";
}
