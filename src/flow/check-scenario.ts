import type { Flow } from "./flow.ts";
import { finding, type FlowFinding } from "./finding.ts";
import { findCauses, type Scenario } from "./scenarios.ts";

/** What is wrong on one way through the flow. */
export function checkScenario(flow: Flow, way: Scenario): FlowFinding[] {
  return [...checkCompensations(flow, way), ...checkUndos(way), ...checkPublishedTwice(way)];
}

/** Where something fails, everything done must be undone, except what came of the failure itself. */
function checkCompensations(flow: Flow, way: Scenario): FlowFinding[] {
  const failure = way.made.find((made) => made.failure);
  if (failure === undefined) return [];
  const undone = new Set(listUndos(way).map(({ effect }) => effect));
  return way.made.flatMap(({ event, reaction, failure: failed }, place) => {
    const isEffect = reaction !== undefined && !failed && reaction.undoes.length === 0;
    const needsNone = undone.has(event) || Object.hasOwn(flow.noUndo, event);
    if (!isEffect || needsNone || findCauses(way, place).some((made) => made.failure)) return [];
    return finding({
      code: "missing-compensation",
      event,
      where: listEventNames(way),
      what: `When "${failure.event}" happens, nothing undoes "${event}".`,
      remedy: `Let ${reaction.by} react to the failure with { undoes: … }, or say noUndo() with the reason.`,
    });
  });
}

function checkUndos(way: Scenario): FlowFinding[] {
  const where = listEventNames(way);
  const all = listUndos(way);
  return all.flatMap(({ effect, by, on, cause }, index) => {
    const found: FlowFinding[] = [];
    const about = `"${by}" undoes "${effect}" on "${on}"`;
    if (!where.includes(effect)) {
      found.push(
        finding({
          code: "undo-of-nothing",
          event: effect,
          where,
          what: `${about}, but there is a way on which that has not happened.`,
          remedy:
            "React to an event that only comes after it, or fail with another event before and after it.",
        }),
      );
    } else if (!findCauses(way, cause).some(({ event }) => event === effect)) {
      found.push(
        finding({
          code: "undo-in-a-race",
          event: effect,
          where,
          what: `${about}, which may come before that has happened.`,
          remedy: `Let ${by} remember what it was asked to undo, so that the late effect is not made.`,
        }),
      );
    }
    if (all.findIndex((other) => other.effect === effect) !== index) {
      found.push(
        finding({
          code: "undone-twice",
          event: effect,
          where,
          what: `"${effect}" is undone more than once on one way.`,
          remedy: "Leave it to one reaction, or let the second follow only from the failure of the first.",
        }),
      );
    }
    return found;
  });
}

function checkPublishedTwice(way: Scenario): FlowFinding[] {
  return way.made.flatMap(({ event }, place) => {
    const earlier = way.made.findIndex((made) => made.event === event);
    const isLoop = findCauses(way, place).includes(way.made[earlier] as Scenario["made"][number]);
    if (earlier === place || isLoop) return [];
    return finding({
      code: "made-twice",
      event,
      where: listEventNames(way),
      what: `"${event}" is published by two reactions on one way.`,
      remedy: "Give each its own event, or let only one of them publish it.",
    });
  });
}

/** What was taken back, by whom, because of what. A compensation that failed has undone nothing. */
function listUndos(way: Scenario) {
  return way.fired
    .filter(({ outcome }) => !outcome.failure)
    .flatMap(({ reaction, cause }) =>
      reaction.undoes.map((effect) => ({ effect, by: reaction.by, on: reaction.on, cause })),
    );
}

function listEventNames(way: Scenario): readonly string[] {
  return way.made.map(({ event }) => event);
}
