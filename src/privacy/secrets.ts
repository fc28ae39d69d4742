const MOST = 1_000;
const SHORTEST_NUMBER = 5;

/** The texts in opened values, for taking them out of what is written about their message. */
export function secretsIn(values: readonly unknown[]): readonly string[] {
  const secrets = new Set<string>();
  const left = [...values];
  while (left.length > 0 && secrets.size < MOST) {
    const value = left.pop();
    if (typeof value === "string") secrets.add(value);
    else if (typeof value === "number" && String(value).length >= SHORTEST_NUMBER) secrets.add(String(value));
    else if (typeof value === "object" && value !== null) left.push(...Object.values(value as object));
  }
  return [...secrets].sort((a, b) => b.length - a.length);
}
