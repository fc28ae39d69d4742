import { SagaboxError } from "../errors/index.ts";
import type { AnyEvent } from "../message/index.ts";
import { findNearest } from "../options/index.ts";
import { type Flow, type Outcome, publishedBy, type Reaction } from "./flow.ts";
import { reactionKeys, type ReactionOptions } from "./reaction-options.ts";

export interface FlowStart {
  /** The event a path starts with; with several, any one of them. */
  begins(...events: readonly [AnyEvent, ...AnyEvent[]]): FlowBody;
}

export interface FlowBody {
  /** What a service does about an event. Several services may react to one event, each on its own. */
  on(event: AnyEvent, reaction: ReactionOptions): FlowBody;
  /** The effect of this event stays even when the flow fails: the reason says why that is right. */
  noUndo(event: AnyEvent, reason: string): FlowBody;
  /** The events after which nothing has to follow. Closes the declaration; FLOW_INVALID tells what is wrong with it. */
  ends(...events: readonly [AnyEvent, ...AnyEvent[]]): Flow;
}

/**
 * Declares which event leads to which over services that know nothing of each other but their events. The result is
 * data: `checkFlow` finds what was forgotten, `flowDiagram` draws it, `bus.flows.watch` records the paths.
 */
export function flow(name: string): FlowStart {
  return { begins: (...begins) => createBody({ name, begins, reactions: [], noUndo: [] }) };
}

function createBody(declared: Omit<DeclaredFlow, "ends">): FlowBody {
  return {
    on: (event, reaction) =>
      createBody({ ...declared, reactions: [...declared.reactions, { event, options: reaction }] }),
    noUndo: (event, reason) => createBody({ ...declared, noUndo: [...declared.noUndo, { event, reason }] }),
    ends: (...ends) => readFlow({ ...declared, ends }),
  };
}

/** What the fluent declaration has gathered, unchecked. */
interface DeclaredFlow {
  readonly name: string;
  readonly begins: readonly AnyEvent[];
  readonly reactions: readonly DeclaredReaction[];
  readonly noUndo: readonly { readonly event: AnyEvent; readonly reason: string }[];
  readonly ends: readonly AnyEvent[];
}

interface DeclaredReaction {
  readonly event: AnyEvent;
  readonly options: ReactionOptions;
}

const plainName = /^[A-Za-z][A-Za-z0-9_.-]{0,99}$/;

/** Refuses what can only be a slip and freezes the rest; what is a matter of judgement is left to `checkFlow`. */
function readFlow(declared: DeclaredFlow): Flow {
  const { name } = declared;
  const names = new EventNames(name);
  names.assertRule(
    typeof name === "string" && plainName.test(name),
    `the name must match ${String(plainName)}`,
  );
  const flow = {
    name,
    begins: names.addAtLeastOne("begins()", declared.begins),
    reactions: Object.freeze(declared.reactions.map((reaction) => readReaction(names, reaction))),
    noUndo: Object.freeze(Object.fromEntries(declared.noUndo.map((one) => readReason(names, one)))),
    ends: names.addAtLeastOne("ends()", declared.ends),
    events: names.events(),
  };
  rejectUnreachableEvents(names, flow);
  rejectDuplicateReactions(names, flow);
  return Object.freeze(flow);
}

function readReaction(names: EventNames, { event, options }: DeclaredReaction): Reaction {
  const on = names.addEvent("on()", event);
  const where = `on(${on})`;
  names.assertRule(
    typeof options === "object" && options !== null,
    `${where} needs to say by whom and to what`,
  );
  for (const key of Object.keys(options))
    names.assertRule(reactionKeys.includes(key), unknownKey(where, key));
  const { by, leadsTo, or, orFailsWith, undoes } = options;
  names.assertRule(
    typeof by === "string" && plainName.test(by),
    `${where} needs \`by\`, the name of a service`,
  );
  const well = names.addAtLeastOne(`leadsTo of ${where}`, toList(leadsTo));
  const otherwise = names.addEvents(`or of ${where}`, toList(or));
  const badly = names.addEvents(`orFailsWith of ${where}`, toList(orFailsWith));
  const outcomes = [
    createOutcome(well, false),
    ...otherwise.map((one) => createOutcome([one], false)),
    ...badly.map((one) => createOutcome([one], true)),
  ];
  const published = names.assertDistinct(`the outcomes of ${where} by "${by}"`, [
    ...well,
    ...otherwise,
    ...badly,
  ]);
  names.assertRule(!published.includes(on), `${where} by "${by}" leads to itself`);
  return Object.freeze({
    on,
    by,
    outcomes: Object.freeze(outcomes),
    undoes: names.addEvents(`undoes of ${where}`, toList(undoes)),
  });
}

function readReason(names: EventNames, { event, reason }: DeclaredFlow["noUndo"][number]): [string, string] {
  const name = names.addEvent("noUndo()", event);
  names.assertRule(typeof reason === "string" && reason.trim() !== "", `noUndo(${name}) needs a reason`);
  return [name, reason];
}

function rejectUnreachableEvents(names: EventNames, { begins, reactions, events }: Flow): void {
  const happening = new Set([...begins, ...reactions.flatMap(publishedBy)]);
  for (const { name } of events) {
    const suggestion = findNearest(name, [...happening]);
    const hint = suggestion === undefined ? "" : `; did you mean "${suggestion}"?`;
    names.assertRule(
      happening.has(name),
      `nothing leads to "${name}" and the flow does not begin with it${hint}`,
    );
  }
}

function rejectDuplicateReactions(names: EventNames, { reactions }: Flow): void {
  const seen = new Set<string>();
  for (const reaction of reactions) {
    for (const event of publishedBy(reaction)) {
      const { on, by } = reaction;
      const same = `"${by}" reacts to "${on}" with "${event}"`;
      names.assertRule(!seen.has(same), `${same} twice`);
      seen.add(same);
    }
  }
}

function createOutcome(events: readonly string[], failure: boolean): Outcome {
  return Object.freeze({ events: Object.freeze([...events]), failure });
}

function toList(events: AnyEvent | readonly AnyEvent[] | undefined): readonly AnyEvent[] {
  if (events === undefined) return [];
  return Array.isArray(events) ? (events as readonly AnyEvent[]) : [events as AnyEvent];
}

function unknownKey(where: string, key: string): string {
  const suggestion = findNearest(key, reactionKeys);
  return `${where} has no option "${key}"${suggestion === undefined ? "" : `; did you mean "${suggestion}"?`}`;
}

/** Turns the contracts of a declaration into names, and remembers each contract once. */
class EventNames {
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
