/** Start and end index of a value in a JSON text. */
interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * Finds a member of the object that starts at `at`, without parsing its value. The text need not be valid
 * JSON: the caller parses the text around the span, and the reader of the value parses the span.
 */
export function findMember(text: string, at: number, key: string): Span | undefined {
  let index = skipSpace(text, at);
  if (text[index] !== "{") return undefined;
  do {
    const name = skipSpace(text, index + 1);
    const nameEnd = skipString(text, name);
    const colon = skipSpace(text, nameEnd);
    if (nameEnd === -1 || text[colon] !== ":") return undefined;
    const start = skipSpace(text, colon + 1);
    const end = skipValue(text, start);
    if (end === -1) return undefined;
    if (text.slice(name + 1, nameEnd - 1) === key) return { start, end };
    index = skipSpace(text, end);
  } while (text[index] === ",");
  return undefined;
}

function skipSpace(text: string, index: number): number {
  let next = index;
  while (" \n\r\t".includes(text[next] ?? "-")) next++;
  return next;
}

function skipString(text: string, opening: number): number {
  if (text[opening] !== '"') return -1;
  for (let end = text.indexOf('"', opening + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(end - 1 - backslashes) === 92) backslashes++;
    if (backslashes % 2 === 0) return end + 1;
  }
  return -1;
}

const bracket = /["{}[\]]/g;

function skipValue(text: string, start: number): number {
  const first = text[start];
  if (first === '"') return skipString(text, start);
  if (first !== "{" && first !== "[") return skipScalar(text, start);
  let depth = 0;
  bracket.lastIndex = start;
  for (let match = bracket.exec(text); match !== null; match = bracket.exec(text)) {
    if (match[0] === '"') {
      bracket.lastIndex = skipString(text, match.index);
      if (bracket.lastIndex <= 0) return -1;
    } else {
      depth += match[0] === "{" || match[0] === "[" ? 1 : -1;
      if (depth === 0) return match.index + 1;
    }
  }
  return -1;
}

function skipScalar(text: string, start: number): number {
  let end = start;
  while (end < text.length && !",}] \n\r\t".includes(text[end] ?? "")) end++;
  return end === start ? -1 : end;
}
