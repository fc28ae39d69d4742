/** What is known of the objects at one place of a JSON text: how many there were, and of each key how often and with what. */
interface FieldTypes {
  objects: number;
  readonly keys: Map<string, { times: number; readonly types: Set<string> }>;
}

/** The keys and types of JSON texts, without their values: `.messages[]` is each object of the list under `messages`. */
export type Shape = ReadonlyMap<string, FieldTypes>;

/** What stands under the keys in `anything` is the application's own, or another thing each time: nobody looks into it. */
export function buildShape(values: readonly unknown[], anything: readonly string[] = []): Shape {
  const shape = new Map<string, FieldTypes>();
  for (const value of values) note({ shape, anything }, ".", value);
  return shape;
}

interface Noting {
  readonly shape: Map<string, FieldTypes>;
  readonly anything: readonly string[];
}

function note(noting: Noting, path: string, value: unknown): void {
  const { shape, anything } = noting;
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) {
    for (const one of value) note(noting, `${path}[]`, one);
    return;
  }
  const place = shape.get(path) ?? { objects: 0, keys: new Map() };
  shape.set(path, place);
  place.objects += 1;
  for (const [key, one] of Object.entries(value)) {
    const seen = place.keys.get(key) ?? { times: 0, types: new Set<string>() };
    place.keys.set(key, seen);
    seen.times += 1;
    for (const type of anything.includes(key) ? ["anything"] : findTypes(one)) seen.types.add(type);
    if (!anything.includes(key)) note(noting, `${path === "." ? "" : path}.${key}`, one);
  }
}

/** A list is known by what is in it. An empty one says no more than that it is one. */
function findTypes(value: unknown): readonly string[] {
  if (value === null) return ["null"];
  if (!Array.isArray(value)) return [typeof value];
  return ["list", ...value.flatMap((one) => findTypes(one).map((type) => `list of ${type}`))];
}

/** One line for each place: its keys with their types, `?` behind those that may be absent. */
export function shapeText(shape: Shape): string {
  return [...shape]
    .map(([path, { objects, keys }]) => {
      const fields = [...keys].map(([key, { times, types }]) => {
        const lists = [...types].some((type) => type.startsWith("list of "));
        const shown = [...types].filter((type) => type !== "list" || !lists).sort();
        return `${key}${times < objects ? "?" : ""}: ${shown.join(" | ")}`;
      });
      return `  ${path}  ${fields.sort().join(", ")}`;
    })
    .sort()
    .join("\n");
}

/** Adds the types that were recorded before, for the keys that are still there: what is null now may be a text at other times. */
export function addRecorded(shape: Shape, recorded: string): void {
  for (const [path, fields] of parseFields(recorded)) {
    for (const [key, { types }] of fields) {
      const seen = shape.get(path)?.keys.get(key)?.types;
      if (seen?.has("anything") === false) for (const type of types) seen.add(type);
    }
  }
}

interface Field {
  readonly optional: boolean;
  readonly types: readonly string[];
}

function parseFields(text: string): ReadonlyMap<string, ReadonlyMap<string, Field>> {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return new Map(
    lines.map((line) => {
      const [path = "", fields = ""] = line.trim().split(/ {2}/);
      return [path, new Map(fields.split(", ").map(parseField))];
    }),
  );
}

function parseField(text: string): [string, Field] {
  const [name = "", types = ""] = text.split(": ");
  return [name.replace(/\?$/, ""), { optional: name.endsWith("?"), types: types.split(" | ") }];
}

/** How what was seen differs from what was recorded: a key that is new, gone, or holds something else. */
export function shapeDifferences(seen: Shape, recorded: string): readonly string[] {
  const [now, then] = [parseFields(shapeText(seen)), parseFields(recorded)];
  const gone = [...then.keys()].filter((path) => !now.has(path)).map((path) => `${path} is gone`);
  const changed = [...now].flatMap(([path, fields]) => {
    const before = then.get(path);
    if (before === undefined) return [`${path} is new`];
    const lost = [...before]
      .filter(([key, field]) => !field.optional && (fields.get(key)?.optional ?? true))
      .map(([key]) => `${path} ${key} is gone`);
    return [
      ...lost,
      ...[...fields].flatMap(([key, field]) => otherThan(before.get(key), `${path} ${key}`, field)),
    ];
  });
  return [...gone, ...changed];
}

function otherThan(before: Field | undefined, name: string, { types }: Field): readonly string[] {
  if (before === undefined) return [`${name} is new`];
  const allowed = before.types.some((type) => type.startsWith("list"))
    ? [...before.types, "list"]
    : before.types;
  return types.filter((type) => !allowed.includes(type)).map((type) => `${name} is ${type} now`);
}
