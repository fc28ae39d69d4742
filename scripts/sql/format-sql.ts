const MAX_WIDTH = 120;
/** Lines that begin a query, and lines that begin one of its clauses; all others continue the line before. */
const QUERIES =
  /^(with|select|insert|update|delete|values|union|create|alter|drop|grant|lock)\b|^\w+ as (not )?(materialized )?\(/;
const CLAUSES = /^(from|where|join|left|cross|set|order|group|having|limit|on|do|returning|for|using)\b/;

/** Indents a statement by its parentheses and clauses, and wraps long lists. Text in quotes stays as it is. */
export function formatSql(text: string): string {
  if (/\$\w*\$/.test(text)) return text;
  const lines: string[] = [];
  // The indents of the lines that opened the parentheses that are open.
  let open: readonly number[] = [];
  let quoted = false;
  for (const raw of text.split("\n")) {
    const line = raw.trim();
    if (quoted) lines.push(raw);
    if (line === "" && !quoted) continue;
    const base = open.length === 0 ? 0 : (open.at(-1) ?? 0) + 2;
    const indent = line.startsWith(")") ? (open.at(-1) ?? 0) : base + extraIndent(line);
    if (!quoted) lines.push(...wrap(line, " ".repeat(indent)));
    ({ open, quoted } = scan(line, { open, quoted, indent }));
  }
  return lines.join("\n");
}

function extraIndent(line: string): number {
  if (line.startsWith("--") || QUERIES.test(line)) return 0;
  return CLAUSES.test(line) ? 2 : 4;
}

interface Position {
  readonly open: readonly number[];
  readonly quoted: boolean;
}

function scan(line: string, { open, quoted, indent }: Position & { readonly indent: number }): Position {
  const stack = [...open];
  let inQuotes = quoted;
  for (let i = 0; i < line.length; i++) {
    if (line[i] === "'") inQuotes = !inQuotes;
    else if (inQuotes) continue;
    else if (line.startsWith("--", i)) break;
    else if (line[i] === "(") stack.push(indent);
    else if (line[i] === ")") stack.pop();
  }
  return { open: stack, quoted: inQuotes };
}

/** Breaks a line at commas, "and" and "or" outside quotes. */
function wrap(line: string, indent: string): string[] {
  const lines: string[] = [];
  let current = indent;
  for (const part of line.includes("--") ? [line] : splitLine(line)) {
    if (current.trim() !== "" && current.length + part.trimEnd().length > MAX_WIDTH) {
      lines.push(current.trimEnd());
      current = `${indent}    `;
    }
    current += part;
  }
  return [...lines, current.trimEnd()];
}

function splitLine(line: string): string[] {
  const parts: string[] = [];
  let quoted = false;
  let start = 0;
  for (let i = 0; i < line.length; i++) {
    if (line[i] === "'") quoted = !quoted;
    if (quoted || !BREAKS.test(line.slice(i, i + 5))) continue;
    const end = line[i] === "," ? i + 2 : i + 1;
    parts.push(line.slice(start, end));
    start = end;
  }
  return [...parts, line.slice(start)];
}

const BREAKS = /^(, | and | or )/;
