// Questions about objects of libraries that sagabox does not import.

export function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

export function hasMethod<N extends string>(
  value: object,
  name: N,
): value is object & Record<N, (...args: never[]) => unknown> {
  return name in value && typeof (value as Record<string, unknown>)[name] === "function";
}

/** The values of a static property along the classes of an object, nearest first. */
export function readTags(value: object, property: PropertyKey): readonly unknown[] {
  const tags: unknown[] = [];
  let prototype: unknown = Object.getPrototypeOf(value);
  while (isObject(prototype)) {
    const { constructor } = prototype;
    if (isObject(constructor) && Object.hasOwn(constructor, property)) {
      tags.push((constructor as unknown as Record<PropertyKey, unknown>)[property]);
    }
    prototype = Object.getPrototypeOf(prototype);
  }
  return tags;
}
