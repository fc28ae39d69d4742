import type { Flow } from "./flow.ts";
import { finding, type FlowFinding } from "./finding.ts";
import { leadingTo, type Way } from "./ways.ts";

/** What is wrong on one way through the flow. */
export function checkWay(flow: Flow, way: Way): FlowFinding[] {
  return [...missingCompensations(flow, way), ...undoes(way), ...madeTwice(way)];
}

/** Where something fails, everything done must be undone, except what came of the failure itself. */
function missingCompensations(flow: Flow, way: Way): FlowFinding[] {
  const failure = way.made.find((made) => made.failure);
  if (failure === undefined) return [];
  const undone = new Set(undoings(way).map(({ effect }) => effect));
  return way.made.flatMap(({ event, reaction, failure: failed }, place) => {
    const isEffect = reaction !== undefined && !failed && reaction.undoes.length === 0;
    const needsNone = undone.has(event) || Object.hasOwn(flow.noUndo, event);
    if (!isEffect || needsNone || leadingTo(way, place).some((made) => made.failure)) return [];
    return finding({
      code: "missing-compensation",
      event,
      where: namesOf(way),
      what: `When "${failure.event}" happens, nothing undoes "${event}".`,
      remedy: `Let ${reaction.by} react to the failure with { undoes: … }, or say noUndo() with the reason.`,
    });
  });
}

function undoes(way: Way): FlowFinding[] {
  const where = namesOf(way);
  const all = undoings(way);
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
    } else if (!leadingTo(way, cause).some(({ event }) => event === effect)) {
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

function madeTwice(way: Way): FlowFinding[] {
  return way.made.flatMap(({ event }, place) => {
    const earlier = way.made.findIndex((made) => made.event === event);
    const isLoop = leadingTo(way, place).includes(way.made[earlier] as Way["made"][number]);
    if (earlier === place || isLoop) return [];
    return finding({
      code: "made-twice",
      event,
      where: namesOf(way),
      what: `"${event}" is published by two reactions on one way.`,
      remedy: "Give each its own event, or let only one of them publish it.",
    });
  });
}

/** What was taken back, by whom, because of what. A compensation that failed has undone nothing. */
function undoings(way: Way) {
  return way.fired
    .filter(({ outcome }) => !outcome.failure)
    .flatMap(({ reaction, cause }) =>
      reaction.undoes.map((effect) => ({ effect, by: reaction.by, on: reaction.on, cause })),
    );
}

function namesOf(way: Way): readonly string[] {
  return way.made.map(({ event }) => event);
}
