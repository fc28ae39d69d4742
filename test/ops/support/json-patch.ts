export interface Operation {
  readonly op: "add" | "replace" | "remove";
  readonly path: string;
  readonly value?: unknown;
}

type Container = Record<string, unknown> | unknown[];

/** A copy with the operations of RFC 6902 applied that ops files use. What must be there and is not, is an error. */
export function applyPatch<T extends object>(document: T, operations: readonly Operation[]): T {
  const copy = structuredClone(document);
  for (const operation of operations) applyOne(copy as Container, operation);
  return copy;
}

function applyOne(document: Container, { op, path, value }: Operation): void {
  const keys = path
    .split("/")
    .slice(1)
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
  const last = keys.pop() ?? "";
  let place = document;
  for (const key of keys) {
    const inner = Array.isArray(place) ? place[Number(key)] : place[key];
    if (typeof inner !== "object" || inner === null) throw new Error(`${path}: there is no ${key}`);
    place = inner as Container;
  }
  if (op !== "add" && !(last in place)) throw new Error(`${path}: there is nothing to ${op}`);
  if (Array.isArray(place)) changeList(place, op, last, value);
  else if (op === "remove") delete place[last];
  else place[last] = value;
}

function changeList(list: unknown[], op: Operation["op"], key: string, value: unknown): void {
  const index = key === "-" ? list.length : Number(key);
  if (op === "add") list.splice(index, 0, value);
  else if (op === "remove") list.splice(index, 1);
  else list[index] = value;
}
