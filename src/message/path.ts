type PathKey = string | number | symbol;

/** `lines[3].price`, for error texts. Keys that are no plain words are quoted and cut. */
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

/** The same for a sentence: of a path that goes deep only the two ends. */
export function formatShortPath(keys: readonly PathKey[]): string {
  if (keys.length <= MAX_SHOWN_KEYS) return formatPath(keys);
  return `${formatPath(keys.slice(0, 4))} … ${formatPath(keys.slice(-4))}`;
}
