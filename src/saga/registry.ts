import { SagaboxError } from "../errors/index.ts";
import type { AnyEvent } from "../message/index.ts";
import { listSteps, type SagaDefinition } from "./definition.ts";
import { keyFor } from "./event-key.ts";

/** The saga definitions that this worker has registered, in all versions. */
export class SagaRegistry {
  readonly #known = new Map<string, SagaDefinition>();

  register(definition: SagaDefinition): void {
    const name = definitionKey(definition.name, definition.version);
    const other = this.#known.get(name);
    if (other === definition) return;
    if (other !== undefined) {
      throw new SagaboxError(
        "SAGA_INVALID",
        `Two different sagas are named "${definition.name}" version ${definition.version}. Raise the version of the new one.`,
      );
    }
    this.#known.set(name, definition);
    for (const { step } of listSteps(definition.nodes)) {
      if (step.work.kind === "child") this.register(step.work.saga);
    }
  }

  get(name: string, version: number): SagaDefinition | undefined {
    return this.#known.get(definitionKey(name, version));
  }

  all(): readonly SagaDefinition[] {
    return [...this.#known.values()];
  }

  /** `name/version` of each definition, as the claim statement expects them. */
  names(): readonly string[] {
    return [...this.#known.keys()];
  }

  /** Every event that a step waits for, with the sagas that wait and how each version reads the instance key. */
  listAwaitedEvents(): readonly AwaitedEvent[] {
    const found = new Map<string, AwaitedEvent>();
    for (const definition of this.all()) {
      for (const { step } of listSteps(definition.nodes)) {
        if (step.work.kind !== "wait") continue;
        const { work } = step;
        const { event } = work;
        const entry = found.get(event.name) ?? { event, sagas: new Map() };
        const versions = entry.sagas.get(definition.name) ?? [];
        versions.push({ version: definition.version, keyOf: (data: unknown) => keyFor(work, data) });
        entry.sagas.set(definition.name, versions);
        found.set(event.name, entry);
      }
    }
    return [...found.values()];
  }
}

export interface AwaitedEvent {
  readonly event: AnyEvent;
  /** By saga name: how each version reads the instance key from the event. */
  readonly sagas: Map<string, { readonly version: number; readonly keyOf: (data: unknown) => string }[]>;
}

function definitionKey(name: string, version: number): string {
  return `${name}/${version}`;
}
