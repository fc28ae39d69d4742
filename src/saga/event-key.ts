import { listSteps, type SagaDefinition, type Work } from "./definition.ts";
import { readEvent } from "./step-values.ts";

type Wait = Extract<Work, { kind: "wait" }>;

interface ReceivedEvent {
  readonly type: string;
  readonly data: unknown;
}

/** The instance key that a waiting step reads from an event, whose data are in their wire form. */
export function keyFor({ event, by }: Wait, data: unknown): string {
  return by === null ? (event.key?.(data) ?? "") : by(readEvent(event, data));
}

/** The key that waiting steps read from an event, if none of them reads the key of the instance. */
export function otherKey(
  definition: SagaDefinition,
  key: string,
  { type, data }: ReceivedEvent,
): string | undefined {
  const keys = findWaits(definition, type).map(({ wait }) => keyFor(wait, data));
  return keys.includes(key) ? undefined : keys[0];
}

/**
 * The paths of the steps that an event is for: they wait for it, and read the key of the instance from it. Erased data
 * may hold no key any more. The event was routed here by its key before, so it is then for all steps that wait for it.
 */
export function stepsFor(
  definition: SagaDefinition,
  key: () => string,
  { type, data }: ReceivedEvent,
): ReadonlySet<string> {
  const waits = findWaits(definition, type);
  if (waits.length === 0) return new Set();
  const own = tryKey(key);
  const matching = waits.filter(({ wait }) => own !== undefined && tryKey(() => keyFor(wait, data)) === own);
  const found = matching.length === 0 && holdsErased(data) ? waits : matching;
  return new Set(found.map(({ path }) => path));
}

function findWaits(
  { nodes }: SagaDefinition,
  type: string,
): readonly { readonly path: string; readonly wait: Wait }[] {
  return listSteps(nodes).flatMap(({ path, step: { work } }) =>
    work.kind === "wait" && work.event.name === type ? [{ path, wait: work }] : [],
  );
}

// A key function may get an event that was sent for another version. If it throws, the event has no key for it.
function tryKey(key: () => string): string | undefined {
  try {
    return key();
  } catch {
    return undefined;
  }
}

function holdsErased(data: unknown): boolean {
  return (JSON.stringify(data) ?? "").includes('"$erased":true');
}
