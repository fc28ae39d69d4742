import { stepsOf, type SagaDefinition } from "./definition.ts";

/** The key that an event has for the steps that wait for it, if it is another than that of the instance. */
export function otherKey(
  definition: SagaDefinition,
  key: string,
  { type, data }: { readonly type: string; readonly data: unknown },
): string | undefined {
  const keys = stepsOf(definition.nodes).flatMap(({ step: { work } }) => {
    if (work.kind !== "wait" || work.event.name !== type) return [];
    return [work.by?.(data) ?? work.event.key?.(data) ?? ""];
  });
  return keys.includes(key) ? undefined : keys[0];
}
