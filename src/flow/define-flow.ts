import { SagaboxError } from "../errors/index.ts";
import type { AnyEvent } from "../message/index.ts";
import { findNearest } from "../options/index.ts";
import { type Flow, type Outcome, publishedBy, type Reaction } from "./flow.ts";

export interface FlowStart {
  /** Declares the events that start a path. A path starts with any one of them. */
  begins(...events: readonly [AnyEvent, ...AnyEvent[]]): FlowBody;
}

export interface FlowBody {
  /** Declares how a service reacts to an event. Several services may react to one event independently. */
  on(event: AnyEvent, reaction: ReactionOptions): FlowBody;
  /** Declares that the effect of this event needs no compensation when the flow fails, and why. */
  noUndo(event: AnyEvent, reason: string): FlowBody;
  /** Declares the final events and returns the flow. Throws FLOW_INVALID when the declaration is not consistent. */
  ends(...events: readonly [AnyEvent, ...AnyEvent[]]): Flow;
}

/**
 * Declares a choreography: which service reacts to which event, and with which events. The result is data:
 * `checkFlow` checks it, `flowDiagram` draws it, and `bus.flows.watch` records the paths that messages take.
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

/** The arguments collected by the fluent declaration, not validated yet. */
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

/** Validates and freezes a declaration. Only contradictions throw; `checkFlow` reports questionable designs. */
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
    `${where} needs an object with \`by\` and \`leadsTo\``,
  );
  for (const key of Object.keys(options))
    names.assertRule(reactionKeys.includes(key), unknownKey(where, key));
  const { by, leadsTo, or, orFailsWith, undoes } = options;
  names.assertRule(
    typeof by === "string" && plainName.test(by),
    `${where} needs \`by\`, the name of a service`,
  );
  const success = names.addAtLeastOne(`leadsTo of ${where}`, toList(leadsTo));
  const alternatives = names.addEvents(`or of ${where}`, toList(or));
  const failures = names.addEvents(`orFailsWith of ${where}`, toList(orFailsWith));
  const outcomes = [
    createOutcome(success, false),
    ...alternatives.map((one) => createOutcome([one], false)),
    ...failures.map((one) => createOutcome([one], true)),
  ];
  const published = names.assertDistinct(`the outcomes of ${where} by "${by}"`, [
    ...success,
    ...alternatives,
    ...failures,
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

/** Collects the event contracts of a declaration and returns their names. Throws FLOW_INVALID for invalid ones. */
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
    this.assertRule(twice === undefined, `"${twice}" appears twice in ${where}`);
    return Object.freeze([...names]);
  }
}

type OneOrMore = AnyEvent | readonly [AnyEvent, ...AnyEvent[]];

export interface ReactionOptions {
  /** Name of the service that reacts, as in the options of its bus. */
  readonly by: string;
  /** Events it publishes on success. With several events, it publishes all of them. */
  readonly leadsTo: OneOrMore;
  /** Alternative success events. It publishes one of them instead of `leadsTo`. */
  readonly or?: OneOrMore;
  /** Failure events. It publishes one of them instead of `leadsTo`; earlier effects then need to be undone. */
  readonly orFailsWith?: OneOrMore;
  /** Earlier events whose effects it undoes. */
  readonly undoes?: OneOrMore;
}

export const reactionKeys = ["by", "leadsTo", "or", "orFailsWith", "undoes"];
