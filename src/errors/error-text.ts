/** Returns the message of a thrown value, which may be anything. Never throws. */
export function errorText(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown);
  } catch {
    return "a value without a text was thrown"; // such as an object without a prototype
  }
}

/** Returns the error itself, or wraps a thrown non-error in an Error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(errorText(thrown));
}

/** Returns the candidate with the smallest edit distance, or undefined if none is close to what was written. */
export function findNearest(written: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(written.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(written.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

// Swapping two neighbouring characters counts as one edit (Damerau-Levenshtein).
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const change = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      const swap = swapped ? (before[column - 2] ?? 0) + 1 : change;
      current.push(Math.min(change, swap, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    [before, previous] = [previous, current];
  }
  return previous[b.length] ?? 0;
}
