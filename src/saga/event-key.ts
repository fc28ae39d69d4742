import { listSteps, type SagaDefinition, type Work } from "./definition.ts";

type Wait = Extract<Work, { kind: "wait" }>;

interface ReceivedEvent {
  readonly type: string;
  readonly data: unknown;
}

/** The key of an event as a step that waits for it has it. */
export function keyFor({ event, by }: Wait, data: unknown): string {
  return by === null ? (event.key?.(data) ?? "") : by(data);
}

/** The key that an event has for the steps that wait for it, if it is another than that of the instance. */
export function otherKey(
  definition: SagaDefinition,
  key: string,
  { type, data }: ReceivedEvent,
): string | undefined {
  const keys = findWaits(definition, type).map(({ wait }) => keyFor(wait, data));
  return keys.includes(key) ? undefined : keys[0];
}

/**
 * The paths of the steps that an event is for: those that wait for it and find the key of the instance in it. What is
 * left of erased data may tell no key at all; then it is for all that wait for it, since it came here by its key.
 */
export function stepsFor(
  definition: SagaDefinition,
  key: () => string,
  { type, data }: ReceivedEvent,
): ReadonlySet<string> {
  const waits = findWaits(definition, type);
  if (waits.length === 0) return new Set();
  const ours = tryKey(key);
  const meant = waits.filter(({ wait }) => ours !== undefined && tryKey(() => keyFor(wait, data)) === ours);
  const found = meant.length === 0 && holdsErased(data) ? waits : meant;
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

// The functions of one version are asked about what another one was sent: what they throw is no answer.
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
