import type { AnyEvent } from "../message/index.ts";
import { findNearest } from "../options/index.ts";
import { EventNames } from "./event-names.ts";
import { publishedBy, type Flow, type Outcome, type Reaction } from "./flow.ts";
import { reactionKeys, type ReactionOptions } from "./reaction-options.ts";

/** What the fluent declaration has gathered, unchecked. */
export interface DeclaredFlow {
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
export function readFlow(declared: DeclaredFlow): Flow {
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
