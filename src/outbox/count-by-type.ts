interface TypedMessage {
  readonly type: string;
  readonly topic: string;
}

/**
 * Counts messages per type and topic, so that metrics are emitted once per batch instead of once per message.
 */
export function countByType(
  messages: readonly TypedMessage[],
): (TypedMessage & { readonly count: number })[] {
  const counts: (TypedMessage & { count: number })[] = [];
  let last: (TypedMessage & { count: number }) | undefined;
  for (const { type, topic } of messages) {
    if (last?.type !== type || last.topic !== topic) {
      last = counts.find((seen) => seen.type === type && seen.topic === topic);
      if (last === undefined) counts.push((last = { type, topic, count: 0 }));
    }
    last.count += 1;
  }
  return counts;
}
