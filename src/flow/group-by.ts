/** Lists by what `of` says of their members, in the order in which each was first met. */
export function groupBy<T>(list: readonly T[], of: (one: T) => string): ReadonlyMap<string, readonly T[]> {
  const groups = new Map<string, T[]>();
  for (const one of list) {
    const group = groups.get(of(one));
    if (group === undefined) groups.set(of(one), [one]);
    else group.push(one);
  }
  return groups;
}
