import type { Extra, RoleName } from "../admin/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { oneOf, workerParts, type WorkerPart } from "../options/index.ts";
import type { OutboxSettings } from "../outbox/index.ts";

/** Which parts run: all of them unless said otherwise. */
export function chooseParts(given: readonly WorkerPart[] | undefined): ReadonlySet<WorkerPart> {
  if (given === undefined) return new Set(workerParts);
  if (!Array.isArray(given) || given.length === 0) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `\`parts\` must be a list with at least one of ${workerParts.map((part) => `"${part}"`).join(", ")}.`,
    );
  }
  return new Set(given.map((part: unknown) => oneOf("parts", part, workerParts)));
}

const neededRoles: Readonly<Record<WorkerPart, RoleName>> = {
  relay: "relay",
  consumers: "consumer",
  sagas: "saga",
  upkeep: "owner",
};

/** The database roles whose rights these parts need. */
export function rolesFor(parts: ReadonlySet<WorkerPart>): readonly RoleName[] {
  return [...parts].map((part) => neededRoles[part]);
}

/** What handlers need beyond that when they publish. */
export function extrasFor({ optimistic, overflow }: OutboxSettings): readonly Extra[] {
  return [
    ...(optimistic ? (["optimistic"] as const) : []),
    ...(overflow === null ? [] : (["overflow"] as const)),
  ];
}
