import { isSagaboxError } from "../errors/index.ts";
import { printable, printableJson, withoutPasswords } from "../telemetry/index.ts";

type Cell = string | number | boolean | null;

const GAP = "  ";
const EMPTY_CELL = "–";
const INDENT = "  ";
/** A sentence is not cut below this width. */
const MIN_SENTENCE_WIDTH = 16;

/**
 * Renders rows as columns under headings. Escape sequences in cells are made harmless; null is shown as a dash.
 *
 * A table wider than `columns` (the width of the terminal; default unlimited) is made narrower. Sentences are cut
 * first, the longest one most. If that is not enough, cells without room follow below their row, with their heading.
 * Names, ids and times are never cut, so that they can be copied.
 */
export function table(
  headings: readonly string[],
  rows: readonly (readonly Cell[])[],
  columns = Infinity,
): string {
  const cells = rows.map((row) => row.map((cell) => (cell === null ? EMPTY_CELL : printable(String(cell)))));
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...cells.map((row) => row[column]?.length ?? 0)),
  );
  const layout = chooseLayout(headings, cells, widths, columns);
  const renderRow = (row: readonly string[]): string =>
    layout.inline
      .map((column) => cutCell(row[column] ?? "", layout.widths[column] ?? 0))
      .join(GAP)
      .trimEnd();
  return [
    renderRow(headings),
    layout.inline.map((column) => "─".repeat(layout.widths[column] ?? 0)).join(GAP),
    ...cells.flatMap((row) => [renderRow(row), ...linesBelow(headings, row, layout)]),
  ].join("\n");
}

interface TableLayout {
  /** Width of the terminal. */
  readonly columns: number;
  readonly widths: readonly number[];
  /** Indexes of the columns shown in the row itself. The others follow below it. */
  readonly inline: readonly number[];
  /** Indexes of the columns with sentences, which may be cut. */
  readonly sentences: readonly number[];
}

function chooseLayout(
  headings: readonly string[],
  cells: readonly (readonly string[])[],
  widths: readonly number[],
  columns: number,
): TableLayout {
  const all = [...widths.keys()];
  if (totalWidth(widths) <= columns) return { columns, widths, inline: all, sentences: [] };
  const sentences = all.slice(1).filter((column) => cells.some((row) => row[column]?.includes(" ")));
  const cut = cutSentences(headings, widths, sentences, columns);
  if (totalWidth(cut) <= columns) return { columns, widths: cut, inline: all, sentences };
  return { columns, widths, inline: columnsThatFit(widths, sentences, columns), sentences };
}

function cutCell(cell: string, width: number): string {
  return cell.length <= width ? cell.padEnd(width) : `${cell.slice(0, width - 1)}…`;
}

function totalWidth(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width + GAP.length, -GAP.length);
}

/** Narrows the columns with sentences, the widest one first, until the table fits or each has its minimum width. */
function cutSentences(
  headings: readonly string[],
  widths: readonly number[],
  sentences: readonly number[],
  columns: number,
): readonly number[] {
  const cut = [...widths];
  const minWidth = (column: number): number => Math.max(MIN_SENTENCE_WIDTH, headings[column]?.length ?? 0);
  while (totalWidth(cut) > columns) {
    const open = sentences.filter((column) => (cut[column] ?? 0) > minWidth(column));
    const [widest] = open.toSorted((a, b) => (cut[b] ?? 0) - (cut[a] ?? 0));
    if (widest === undefined) break;
    cut[widest] = (cut[widest] ?? 0) - 1;
  }
  return cut;
}

/** Returns the columns that fit side by side, from the left: always the first one, and none with sentences. */
function columnsThatFit(
  widths: readonly number[],
  sentences: readonly number[],
  columns: number,
): readonly number[] {
  const inline = [0];
  for (const column of [...widths.keys()].slice(1)) {
    if (sentences.includes(column)) continue;
    if (totalWidth([...inline, column].map((one) => widths[one] ?? 0)) <= columns) inline.push(column);
  }
  return inline;
}

/** Renders the cells without room in the row: several short ones per line, each sentence on a line of its own. */
function linesBelow(
  headings: readonly string[],
  row: readonly string[],
  { inline, sentences, columns }: TableLayout,
): readonly string[] {
  const lines: string[] = [];
  let hasRoom = false;
  for (const [column, cell] of row.entries()) {
    if (inline.includes(column) || cell === EMPTY_CELL || cell === "") continue;
    const part = `${headings[column] ?? ""}: ${cell}`;
    const isSentence = sentences.includes(column);
    const last = lines.at(-1) ?? "";
    if (!isSentence && hasRoom && last.length + GAP.length + part.length <= columns) {
      lines[lines.length - 1] = `${last}${GAP}${part}`;
    } else {
      lines.push(`${INDENT}${isSentence ? cutCell(part, columns - INDENT.length).trimEnd() : part}`);
    }
    hasRoom = !isSentence;
  }
  return lines;
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
