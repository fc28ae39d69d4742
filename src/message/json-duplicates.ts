/**
 * How many members the objects in this JSON text have. JSON.parse keeps the last of two that share a key without a word,
 * while other readers keep the first; so this is counted against the keys of the parsed value. The text must be valid
 * JSON, which is why only strings followed by a colon need to be found.
 */
export function countMembers(text: string): number {
  let members = 0;
  let start = text.indexOf('"');
  while (start !== -1) {
    let next = findClosingQuote(text, start) + 1;
    while (isSpace(text.charCodeAt(next))) next++;
    if (text.charCodeAt(next) === 58) members++;
    start = text.indexOf('"', next);
  }
  return members;
}

function findClosingQuote(text: string, opening: number): number {
  let end = text.indexOf('"', opening + 1);
  while (isEscaped(text, end)) end = text.indexOf('"', end + 1);
  return end;
}

function isEscaped(text: string, index: number): boolean {
  let backslashes = 0;
  while (text.charCodeAt(index - 1 - backslashes) === 92) backslashes++;
  return backslashes % 2 === 1;
}

function isSpace(code: number): boolean {
  return code === 32 || code === 10 || code === 13 || code === 9;
}
