import { publishedBy, reactionsTo, type Flow } from "./flow.ts";

/** The events that follow directly from this one. */
export function findFollowing(flow: Flow, event: string): readonly string[] {
  return [...new Set(reactionsTo(flow, event).flatMap(publishedBy))];
}

/** Every event that some way from a beginning leads to. */
export function findReachable(flow: Flow): ReadonlySet<string> {
  const reached = new Set(flow.begins);
  for (const event of reached) for (const next of findFollowing(flow, event)) reached.add(next);
  return reached;
}

/** Circles of events, one for each event that closes one; first and last are the same. */
export function findLoops(flow: Flow): readonly (readonly string[])[] {
  const loops: string[][] = [];
  const done = new Set<string>();
  const follow = (event: string, line: readonly string[]): void => {
    const start = line.indexOf(event);
    if (start !== -1) loops.push([...line.slice(start), event]);
    if (start !== -1 || done.has(event)) return;
    for (const next of findFollowing(flow, event)) follow(next, [...line, event]);
    done.add(event);
  };
  for (const { name } of flow.events) follow(name, []);
  return loops;
}
