import { SagaboxError } from "../errors/index.ts";
import { oneOf } from "../options/index.ts";

/**
 * What a running bus is made of. `relay` sends what was published, `consumers` handles what arrives and receives replies,
 * `sagas` moves sagas on, `upkeep` keeps partitions and forgets what is old, which only the owner of the tables may do.
 */
export const workerParts = ["relay", "consumers", "sagas", "upkeep"] as const;

export type WorkerPart = (typeof workerParts)[number];

/** Which parts run: all of them unless said otherwise. */
export function chosenParts(given: readonly WorkerPart[] | undefined): ReadonlySet<WorkerPart> {
  if (given === undefined) return new Set(workerParts);
  if (!Array.isArray(given) || given.length === 0) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `\`parts\` must be a list with at least one of ${workerParts.map((part) => `"${part}"`).join(", ")}.`,
    );
  }
  return new Set(given.map((part: unknown) => oneOf("parts", part, workerParts)));
}
