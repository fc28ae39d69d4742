import { SagaboxError } from "../errors/index.ts";
import type { AnyEvent } from "../message/index.ts";

/** Turns the contracts of a declaration into names, and remembers each contract once. */
export class EventNames {
  readonly #flow: string;
  readonly #known = new Map<string, AnyEvent>();

  constructor(flow: string) {
    this.#flow = flow;
  }

  assertRule(holds: boolean, rule: string): void {
    if (!holds) throw new SagaboxError("FLOW_INVALID", `flow(${JSON.stringify(this.#flow)}): ${rule}.`);
  }

  events(): readonly AnyEvent[] {
    return Object.freeze([...this.#known.values()]);
  }

  addEvent(where: string, event: AnyEvent): string {
    this.assertRule(event?.kind === "event", `${where} takes contracts made by event()`);
    const known = this.#known.get(event.name) ?? event;
    this.assertRule(
      known.version === event.version,
      `"${event.name}" occurs in versions ${known.version} and ${event.version}; a flow has one contract for each event`,
    );
    this.#known.set(event.name, known);
    return event.name;
  }

  addEvents(where: string, events: readonly AnyEvent[]): readonly string[] {
    return this.assertDistinct(
      where,
      events.map((event) => this.addEvent(where, event)),
    );
  }

  addAtLeastOne(where: string, events: readonly AnyEvent[]): readonly string[] {
    this.assertRule(events.length > 0, `${where} needs an event`);
    return this.addEvents(where, events);
  }

  assertDistinct(where: string, names: readonly string[]): readonly string[] {
    const twice = names.find((name, index) => names.indexOf(name) !== index);
    this.assertRule(twice === undefined, `"${twice}" stands twice in ${where}`);
    return Object.freeze([...names]);
  }
}
