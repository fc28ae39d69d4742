type PathKey = string | number | symbol;

/**
 * Formats a path for error messages, as in `lines[3].price`. Keys that are not plain identifiers are quoted
 * and cut to 40 characters.
 */
export function formatPath(keys: readonly PathKey[]): string {
  let path = "";
  for (const key of keys) {
    if (typeof key === "number") path += `[${key}]`;
    else if (typeof key === "string" && /^[A-Za-z_$][\w$]{0,63}$/.test(key))
      path += path === "" ? key : `.${key}`;
    else path += `[${JSON.stringify(String(key).slice(0, 40))}]`;
  }
  return path;
}

const MAX_SHOWN_KEYS = 12;

/**
 * Formats a path for a sentence: of a path with more than 12 keys it shows the first four and the last four.
 */
export function formatShortPath(keys: readonly PathKey[]): string {
  if (keys.length <= MAX_SHOWN_KEYS) return formatPath(keys);
  return `${formatPath(keys.slice(0, 4))} … ${formatPath(keys.slice(-4))}`;
}
