const MAX_SECRETS = 1_000;
const MIN_NUMBER_LENGTH = 5;

/** The texts in opened values, for taking them out of what is written about their message. */
export function findSecrets(values: readonly unknown[]): readonly string[] {
  const secrets = new Set<string>();
  const left = [...values];
  while (left.length > 0 && secrets.size < MAX_SECRETS) {
    const value = left.pop();
    if (typeof value === "string") secrets.add(value);
    else if (typeof value === "number" && String(value).length >= MIN_NUMBER_LENGTH)
      secrets.add(String(value));
    else if (typeof value === "object" && value !== null) left.push(...Object.values(value as object));
  }
  return [...secrets].sort((a, b) => b.length - a.length);
}
