const time = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*/g;
const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z\b/;

/** Texts anywhere in a JSON value that tell a time otherwise than ISO 8601 in UTC does, each with its place. */
export function foreignTimes(value: unknown, place = ""): readonly string[] {
  if (typeof value === "string") {
    const times = value.match(time) ?? [];
    return times.every((one) => iso.test(one)) ? [] : [`${place} ${value}`];
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, one]) =>
    foreignTimes(one, Array.isArray(value) ? `${place}[${key}]` : `${place}.${key}`),
  );
}
