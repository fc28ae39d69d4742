import { isErased, isSealed } from "../message/index.ts";

/** Where a value is: keys of objects and positions in lists. */
export type Place = readonly (string | number)[];

/** No message may make us look at more places than this. */
export const MOST_PLACES = 10_000;

/**
 * The places in data that the patterns name, each once, none inside another. `*` stands for every element of a list
 * or every value of an object. Undefined when there are too many.
 */
export function placesOf(data: unknown, patterns: readonly string[]): readonly Place[] | undefined {
  const found: Place[] = [];
  for (const pattern of outermost(patterns)) {
    if (!collect(data, pattern.split("."), [], found)) return undefined;
  }
  return withoutNested(found);
}

function collect(value: unknown, pattern: readonly string[], at: Place, found: Place[]): boolean {
  const [part, ...rest] = pattern;
  if (part === undefined) return found.push(at) <= MOST_PLACES;
  return keysAt(value, part).every((key) =>
    collect((value as Record<string | number, unknown>)[key], rest, [...at, key], found),
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

function outermost(patterns: readonly string[]): readonly string[] {
  const all = new Set(patterns);
  return [...all].filter((one) => ![...all].some((other) => one.startsWith(`${other}.`)));
}

// A star and a name may meet at one place, or one may reach into what the other takes whole.
function withoutNested(places: readonly Place[]): readonly Place[] {
  if (places.length < 2) return places;
  const byText = new Map(places.map((place) => [JSON.stringify(place), place]));
  return [...byText.values()].filter(
    (place) => !place.some((_, length) => byText.has(JSON.stringify(place.slice(0, length)))),
  );
}

/** Where sealed values are. */
export function sealedIn(data: unknown): readonly Place[] {
  return findIn(data, isSealed);
}

/** Where values were, of persons who were erased. */
export function erasedIn(data: unknown): readonly Place[] {
  return findIn(data, isErased);
}

function findIn(
  data: unknown,
  isFound: (value: unknown) => boolean,
  at: Place = [],
  found: Place[] = [],
): readonly Place[] {
  if (isFound(data)) found.push(at);
  else if (typeof data === "object" && data !== null && found.length < MOST_PLACES) {
    const isList = Array.isArray(data);
    for (const [key, value] of Object.entries(data))
      findIn(value, isFound, [...at, isList ? Number(key) : key], found);
  }
  return found;
}

/** The value at a place that exists. */
export function valueAt(data: unknown, place: Place): unknown {
  return place.reduce<unknown>((value, key) => (value as Record<string | number, unknown>)[key], data);
}

/** A copy with other values at some places; what holds none of them is shared with the original. */
export function replaceAt(data: unknown, changes: ReadonlyMap<Place, unknown>): unknown {
  const copies = new Map<unknown, unknown>();
  const copyOf = (value: unknown): Record<string | number, unknown> => {
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
    let parent = copyOf(root);
    root = parent;
    for (const key of place.slice(0, -1)) {
      const child = copyOf(parent[key]);
      parent[key] = child;
      parent = child;
    }
    parent[last] = value;
  }
  return root;
}
