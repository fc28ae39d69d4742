/** More are not remembered: topics may be made by the thousand. */
const MAX_NAMES = 1_000;

const names = new Map<string, string>();

/**
 * For the few names that come again with every row, each as one text instead of a piece of every answer. One for each
 * field: usually it is the name that came last, and to compare is less than to look up.
 */
export function createNameInterner(): (name: string) => string {
  let last = "";
  return (name) => (name === last ? last : (last = internName(name)));
}

function internName(name: string): string {
  const same = names.get(name);
  if (same !== undefined) return same;
  if (names.size >= MAX_NAMES) names.clear();
  const own = copyString(name);
  names.set(own, own);
  return own;
}

/** A copy. A piece of a text keeps the whole text in memory, which matters for what is remembered. */
export function copyString(text: string): string {
  return Buffer.from(text).toString();
}
