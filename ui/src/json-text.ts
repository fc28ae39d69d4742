// JSON as text. It is never parsed into numbers, so that 64-bit integers keep every digit.

export interface Token {
  readonly kind: "key" | "string" | "number" | "word" | "mark" | "space";
  readonly text: string;
}

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[a-z]+|[{}[\],:]|\s+|./gy;

/** Splits JSON text into tokens. Text that is not JSON becomes tokens as well, so that it can be shown. */
export function tokenize(text: string): Token[] {
  const parts = text.match(TOKEN) ?? [];
  return parts.map((part, index) => {
    if (/^\s+$/.test(part)) return { kind: "space", text: part };
    if (part.startsWith('"') && part.length > 1) {
      const after = parts.slice(index + 1, index + 3).find((next) => !/^\s+$/.test(next));
      return { kind: after === ":" ? "key" : "string", text: part };
    }
    if (/^[-\d]/.test(part)) return { kind: "number", text: part };
    return { kind: /^[a-z]/.test(part) ? "word" : "mark", text: part };
  });
}

/** The same JSON with one value per line. Returns other text unchanged. */
export function prettyPrint(text: string): string {
  if (!isJson(text)) return text;
  let depth = 0;
  let out = "";
  const tokens = tokenize(text).filter(({ kind }) => kind !== "space");
  for (const [index, { text: part }] of tokens.entries()) {
    const next = tokens[index + 1]?.text;
    if (part === "{" || part === "[") {
      const isEmpty = next === "}" || next === "]";
      if (!isEmpty) depth += 1;
      out += isEmpty ? part : `${part}${newLine(depth)}`;
    } else if (part === "}" || part === "]") {
      const previous = tokens[index - 1]?.text;
      const isEmpty = previous === "{" || previous === "[";
      if (!isEmpty) depth -= 1;
      out += isEmpty ? part : `${newLine(depth)}${part}`;
    } else if (part === ",") {
      out += `,${newLine(depth)}`;
    } else {
      out += part === ":" ? ": " : part;
    }
  }
  return out;
}

function newLine(depth: number): string {
  return `\n${"  ".repeat(Math.max(0, depth))}`;
}

export function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

export interface DiffLine {
  readonly kind: "same" | "removed" | "added";
  readonly text: string;
}

const MAX_COMPARED = 2_000_000;

/** Lines that were removed and added between two texts: the longest common subsequence stays. */
export function diffLines(before: string, after: string): DiffLine[] {
  const a = before.split("\n");
  const b = after.split("\n");
  // Two huge texts would need too much memory for one page.
  if (a.length * b.length > MAX_COMPARED) {
    return [...a.map((text) => line("removed", text)), ...b.map((text) => line("added", text))];
  }
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width);
  const at = (i: number, j: number): number => common[i * width + j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
    }
  }
  const out: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const left = a[i];
    const right = b[j];
    if (left !== undefined && left === right) {
      out.push(line("same", left));
      i += 1;
      j += 1;
    } else if (right === undefined || (left !== undefined && at(i + 1, j) >= at(i, j + 1))) {
      out.push(line("removed", left ?? ""));
      i += 1;
    } else {
      out.push(line("added", right));
      j += 1;
    }
  }
  return out;
}

function line(kind: DiffLine["kind"], text: string): DiffLine {
  return { kind, text };
}
