interface Typed {
  readonly type: string;
  readonly topic: string;
}

/** One entry per type and topic: metrics are told once per batch, not once per message. */
export function countByType(messages: readonly Typed[]): (Typed & { readonly count: number })[] {
  const counts = new Map<string, Typed & { count: number }>();
  for (const { type, topic } of messages) {
    const name = `${type} ${topic}`;
    const seen = counts.get(name);
    if (seen === undefined) counts.set(name, { type, topic, count: 1 });
    else seen.count += 1;
  }
  return [...counts.values()];
}
