import { isErased, isEncrypted } from "../message/index.ts";

/** Where a value is: keys of objects and positions in lists. */
export type FieldPath = readonly (string | number)[];

/** No message may make us look at more places than this. */
export const MAX_FIELD_PATHS = 10_000;

/**
 * The places in data that the patterns name, each once, none inside another. `*` stands for every element of a list
 * or every value of an object. Undefined when there are too many.
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

// A star and a name may meet at one place, or one may reach into what the other takes whole.
function removeNested(places: readonly FieldPath[]): readonly FieldPath[] {
  if (places.length < 2) return places;
  const byText = new Map(places.map((place) => [JSON.stringify(place), place]));
  return [...byText.values()].filter(
    (place) => !place.some((_, length) => byText.has(JSON.stringify(place.slice(0, length)))),
  );
}

/** Where sealed values are. */
export function findEncryptedPaths(data: unknown): readonly FieldPath[] {
  return findPaths(data, isEncrypted);
}

/** Where values were, of persons who were erased. */
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

/** The value at a place that exists. */
export function valueAt(data: unknown, place: FieldPath): unknown {
  return place.reduce<unknown>((value, key) => (value as Record<string | number, unknown>)[key], data);
}

/** A copy with other values at some places; what holds none of them is shared with the original. */
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
  for (const [place, value] of changes) {
    const last = place.at(-1);
    if (last === undefined) return value;
    let parent = copyOnce(root);
    root = parent;
    for (const key of place.slice(0, -1)) {
      const child = copyOnce(parent[key]);
      parent[key] = child;
      parent = child;
    }
    parent[last] = value;
  }
  return root;
}
