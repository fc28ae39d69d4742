import { CLEAR } from "./watch.ts";

const GAP = 2;
const MIN_WIDTH = 16;
const INDENT = "  ";
const RULE = /^─+(?: {2}─+)*$/;
const EMPTY_CELL = "–";

/**
 * The tables in `text` made as narrow as the screen. Sentences are cut first, as long as they say something; where that is not
 * enough, what has no room stands below its row, with its heading. Names, ids and times stay whole, so they can be
 * copied; one that is longer than the screen wraps.
 */
export function fitTables(text: string, columns: number): string {
  const lines = text.split("\n");
  for (let at = 1; at < lines.length; at += 1) {
    if (!RULE.test(lines[at] ?? "")) continue;
    const end = lines.indexOf("", at);
    const length = (end === -1 ? lines.length : end) - at + 1;
    const made = fitTable(lines.slice(at - 1, at - 1 + length), columns);
    lines.splice(at - 1, length, ...made);
    at += made.length;
  }
  return lines.join("\n");
}

function fitTable([first = "", rule = "", ...rows]: readonly string[], columns: number): readonly string[] {
  if (rule.length <= columns) return [first, rule, ...rows];
  const clear = first.startsWith(CLEAR) ? CLEAR : "";
  const widths = rule.split(" ".repeat(GAP)).map(({ length }) => length);
  const head = splitCells(first.slice(clear.length), widths);
  const body = rows.map((row) => splitCells(row, widths));
  const sentences = [...widths.keys()]
    .slice(1)
    .filter((column) => body.some((row) => row[column]?.includes(" ")));
  const cut = narrowColumns(head, widths, sentences, columns);
  const isCutEnough = totalWidth(cut) <= columns;
  const above = isCutEnough ? [...widths.keys()] : columnsThatFit(widths, sentences, columns);
  const shownWidths = isCutEnough ? cut : widths;
  const line = (row: readonly string[]): string =>
    above
      .map((column) => fitCell(row[column] ?? "", shownWidths[column] ?? 0))
      .join(" ".repeat(GAP))
      .trimEnd();
  return [
    `${clear}${line(head)}`,
    above.map((column) => "─".repeat(shownWidths[column] ?? 0)).join(" ".repeat(GAP)),
    ...body.flatMap((row) => [line(row), ...linesBelow(head, row, { above, sentences, columns })]),
  ];
}

function splitCells(line: string, widths: readonly number[]): readonly string[] {
  let from = 0;
  return widths.map((width) => {
    const cell = line.slice(from, from + width).trimEnd();
    from += width + GAP;
    return cell;
  });
}

function fitCell(cell: string, width: number): string {
  return cell.length <= width ? cell.padEnd(width) : `${cell.slice(0, width - 1)}…`;
}

function totalWidth(widths: readonly number[]): number {
  return widths.reduce((sum, width) => sum + width + GAP, -GAP);
}

/** The widest sentence gives way first, down to what is still worth reading. */
function narrowColumns(
  head: readonly string[],
  widths: readonly number[],
  sentences: readonly number[],
  columns: number,
): readonly number[] {
  const cut = [...widths];
  const minWidth = (column: number): number => Math.max(MIN_WIDTH, head[column]?.length ?? 0);
  while (totalWidth(cut) > columns) {
    const open = sentences.filter((column) => (cut[column] ?? 0) > minWidth(column));
    const [widest] = open.toSorted((a, b) => (cut[b] ?? 0) - (cut[a] ?? 0));
    if (widest === undefined) break;
    cut[widest] = (cut[widest] ?? 0) - 1;
  }
  return cut;
}

/** The columns that fit beside each other, from the left; the first in any case, and no sentences. */
function columnsThatFit(
  widths: readonly number[],
  sentences: readonly number[],
  columns: number,
): readonly number[] {
  const above = [0];
  for (const column of [...widths.keys()].slice(1)) {
    if (sentences.includes(column)) continue;
    if (totalWidth([...above, column].map((one) => widths[one] ?? 0)) <= columns) above.push(column);
  }
  return above;
}

interface Layout {
  readonly above: readonly number[];
  readonly sentences: readonly number[];
  readonly columns: number;
}

function linesBelow(head: readonly string[], row: readonly string[], layout: Layout): readonly string[] {
  const { above, sentences, columns } = layout;
  const lines: string[] = [];
  let open = false;
  for (const [column, cell] of row.entries()) {
    if (above.includes(column) || cell === EMPTY_CELL || cell === "") continue;
    const part = `${head[column] ?? ""}: ${cell}`;
    const isSentence = sentences.includes(column);
    const last = lines.at(-1) ?? "";
    if (!isSentence && open && last.length + GAP + part.length <= columns) {
      lines[lines.length - 1] = `${last}${" ".repeat(GAP)}${part}`;
    } else {
      lines.push(`${INDENT}${isSentence ? fitCell(part, columns - INDENT.length).trimEnd() : part}`);
    }
    open = !isSentence;
  }
  return lines;
}
