import { CLEAR } from "./watch.ts";

const GAP = 2;
const LEAST = 8;
const RULE = /^─+(?: {2}─+)*$/;
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-/;

/**
 * The tables in `text` made as narrow as the screen: sentences are cut first, then names and times. What people copy
 * stays whole, the first column and ids, so a very narrow screen may still wrap.
 */
export function fitTables(text: string, columns: number): string {
  const lines = text.split("\n");
  for (let at = 1; at < lines.length; at += 1) {
    if (!RULE.test(lines[at] ?? "")) continue;
    const end = lines.indexOf("", at);
    const length = (end === -1 ? lines.length : end) - at + 1;
    lines.splice(at - 1, length, ...fitted(lines.slice(at - 1, at - 1 + length), columns));
    at += length;
  }
  return lines.join("\n");
}

function fitted([first = "", rule = "", ...rows]: readonly string[], columns: number): readonly string[] {
  if (rule.length <= columns) return [first, rule, ...rows];
  const clear = first.startsWith(CLEAR) ? CLEAR : "";
  const widths = rule.split(" ".repeat(GAP)).map(({ length }) => length);
  const split = (line: string): readonly string[] => cells(line, widths);
  const head = split(first.slice(clear.length));
  const body = rows.map(split);
  const cut = narrower(head, body, widths, columns);
  const line = (row: readonly string[]): string =>
    row
      .map((cell, column) => shown(cell, cut[column] ?? 0))
      .join(" ".repeat(GAP))
      .trimEnd();
  return [
    `${clear}${line(head)}`,
    cut.map((width) => "─".repeat(width)).join(" ".repeat(GAP)),
    ...body.map(line),
  ];
}

function cells(line: string, widths: readonly number[]): readonly string[] {
  let from = 0;
  return widths.map((width) => {
    const cell = line.slice(from, from + width).trimEnd();
    from += width + GAP;
    return cell;
  });
}

function shown(cell: string, width: number): string {
  return cell.length <= width ? cell.padEnd(width) : `${cell.slice(0, width - 1)}…`;
}

function narrower(
  head: readonly string[],
  body: readonly (readonly string[])[],
  widths: readonly number[],
  columns: number,
): readonly number[] {
  const has = (column: number, pattern: RegExp): boolean =>
    body.some((row) => pattern.test(row[column] ?? ""));
  const all = [...widths.keys()].slice(1).filter((column) => !has(column, UUID));
  const cut = [...widths];
  const least = (column: number): number => Math.max(LEAST, head[column]?.length ?? 0);
  for (const some of [all.filter((column) => has(column, / /)), all]) {
    for (;;) {
      const over = cut.reduce((sum, width) => sum + width + GAP, -GAP) - columns;
      const open = some.filter((column) => (cut[column] ?? 0) > least(column));
      const [widest] = open.toSorted((a, b) => (cut[b] ?? 0) - (cut[a] ?? 0));
      if (over <= 0 || widest === undefined) break;
      cut[widest] = (cut[widest] ?? 0) - 1;
    }
  }
  return cut;
}
