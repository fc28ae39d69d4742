import { isErased, isEncrypted } from "../message/index.ts";

/** The path to a value: object keys and array indexes. */
export type FieldPath = readonly (string | number)[];

/** The most personal fields in one message. */
export const MAX_FIELD_PATHS = 10_000;

/**
 * Finds the paths in the data that match the patterns, without duplicates and without paths inside another path. `*`
 * matches every element of an array or value of an object. Returns undefined if there are more than MAX_FIELD_PATHS.
 */
export function findFieldPaths(data: unknown, patterns: readonly string[]): readonly FieldPath[] | undefined {
  const found: FieldPath[] = [];
  for (const pattern of keepOutermost(patterns)) {
    if (!collectPaths(data, pattern.split("."), [], found)) return undefined;
  }
  return removeNested(found);
}

function collectPaths(
  value: unknown,
  pattern: readonly string[],
  at: FieldPath,
  found: FieldPath[],
): boolean {
  const [part, ...rest] = pattern;
  if (part === undefined) return found.push(at) <= MAX_FIELD_PATHS;
  return keysAt(value, part).every((key) =>
    collectPaths((value as Record<string | number, unknown>)[key], rest, [...at, key], found),
  );
}

function keysAt(value: unknown, part: string): (string | number)[] {
  if (typeof value !== "object" || value === null) return [];
  if (Array.isArray(value)) {
    if (part === "*") return value.map((_, index) => index);
    return /^(0|[1-9]\d{0,8})$/.test(part) && Number(part) < value.length ? [Number(part)] : [];
  }
  if (Object.hasOwn(value, part)) return (value as Record<string, unknown>)[part] === undefined ? [] : [part];
  return part === "*" ? Object.keys(value) : [];
}

function keepOutermost(patterns: readonly string[]): readonly string[] {
  const all = new Set(patterns);
  return [...all].filter((one) => ![...all].some((other) => one.startsWith(`${other}.`)));
}

// Two patterns, one with `*`, can match the same path, or one a path inside the other's.
function removeNested(paths: readonly FieldPath[]): readonly FieldPath[] {
  if (paths.length < 2) return paths;
  const byText = new Map(paths.map((path) => [JSON.stringify(path), path]));
  return [...byText.values()].filter(
    (path) => !path.some((_, length) => byText.has(JSON.stringify(path.slice(0, length)))),
  );
}

/** Finds the paths of encrypted values. */
export function findEncryptedPaths(data: unknown): readonly FieldPath[] {
  return findPaths(data, isEncrypted);
}

/** Finds the paths of values whose data subject was erased. */
export function findErasedPaths(data: unknown): readonly FieldPath[] {
  return findPaths(data, isErased);
}

function findPaths(
  data: unknown,
  isFound: (value: unknown) => boolean,
  at: FieldPath = [],
  found: FieldPath[] = [],
): readonly FieldPath[] {
  if (isFound(data)) found.push(at);
  else if (typeof data === "object" && data !== null && found.length < MAX_FIELD_PATHS) {
    const isList = Array.isArray(data);
    for (const [key, value] of Object.entries(data))
      findPaths(value, isFound, [...at, isList ? Number(key) : key], found);
  }
  return found;
}

/** Returns the value at an existing path. */
export function valueAt(data: unknown, path: FieldPath): unknown {
  return path.reduce<unknown>((value, key) => (value as Record<string | number, unknown>)[key], data);
}

/** Returns a copy with other values at the given paths. Unchanged parts are shared with the original. */
export function replaceAt(data: unknown, changes: ReadonlyMap<FieldPath, unknown>): unknown {
  const copies = new Map<unknown, unknown>();
  const copyOnce = (value: unknown): Record<string | number, unknown> => {
    if (!copies.has(value)) {
      const copy: unknown = Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) };
      copies.set(value, copy);
      copies.set(copy, copy);
    }
    return copies.get(value) as Record<string | number, unknown>;
  };
  let root = data;
  for (const [path, value] of changes) {
    const last = path.at(-1);
    if (last === undefined) return value;
    let parent = copyOnce(root);
    root = parent;
    for (const key of path.slice(0, -1)) {
      const child = copyOnce(parent[key]);
      parent[key] = child;
      parent = child;
    }
    parent[last] = value;
  }
  return root;
}
