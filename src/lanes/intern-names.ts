/** The cache is cleared at this size, because topics may be created dynamically. */
const MAX_NAMES = 1_000;

const names = new Map<string, string>();

/**
 * Returns a function that replaces equal names by one shared string, so that each row does not keep a slice of its
 * result set in memory. Use one interner per field: consecutive rows usually repeat the previous name, and one
 * comparison is cheaper than a lookup.
 */
export function createNameInterner(): (name: string) => string {
  let last = "";
  return (name) => (name === last ? last : (last = internName(name)));
}

function internName(name: string): string {
  const known = names.get(name);
  if (known !== undefined) return known;
  if (names.size >= MAX_NAMES) names.clear();
  const own = copyString(name);
  names.set(own, own);
  return own;
}

/**
 * Copies a string. V8 keeps the whole parent string alive for a slice of it, so strings that are stored for long
 * need a copy.
 */
export function copyString(text: string): string {
  return Buffer.from(text).toString();
}
