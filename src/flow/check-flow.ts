import { reactionsTo, type Flow } from "./flow.ts";
import { checkScenario } from "./check-scenario.ts";
import { finding, type FlowFinding } from "./finding.ts";
import { findLoops, findReachable } from "./graph.ts";
import { listScenarios } from "./scenarios.ts";

/** More ways than this are not followed; what can be said without them still is. */
const MAX_SCENARIOS = 20_000;

/**
 * What a careful colleague would ask about the flow: forgotten compensations, loops, events that lead nowhere or never
 * happen, undoing what was not done. Pure; an empty list means that nothing was found. Best called in a test.
 */
export function checkFlow(flow: Flow): readonly FlowFinding[] {
  const found = [
    ...checkReachability(flow),
    ...checkLoops(flow),
    ...checkEnds(flow),
    ...checkScenarios(flow),
  ];
  return [
    ...new Map(found.toReversed().map((one) => [`${one.code} ${one.what}`, one])).values(),
  ].toReversed();
}

function checkReachability(flow: Flow): FlowFinding[] {
  const reached = findReachable(flow);
  return flow.events
    .filter(({ name }) => !reached.has(name))
    .map(({ name }) =>
      finding({
        code: "unreachable",
        event: name,
        where: [name],
        what: `"${name}" never happens: no way from the beginning leads to it.`,
        remedy: "Add the reaction that leads to it, begin with it, or leave it out.",
      }),
    );
}

function checkLoops(flow: Flow): FlowFinding[] {
  return findLoops(flow).map((loop) =>
    finding({
      code: "loop",
      event: loop[0] ?? "",
      where: loop,
      what: `The events go round in a circle: ${loop.join(" → ")}.`,
      remedy:
        "Give it an end: another event for the last try, or leave the repetition to the retries of a handler.",
    }),
  );
}

function checkEnds(flow: Flow): FlowFinding[] {
  const reached = findReachable(flow);
  return flow.events.flatMap(({ name }) => {
    const goesOn = reactionsTo(flow, name).length > 0;
    const end = flow.ends.includes(name);
    if (goesOn && end) {
      return finding({
        code: "end-goes-on",
        event: name,
        where: [name],
        what: `"${name}" is declared as an end, but somebody reacts to it.`,
        remedy: "Take it out of ends(), and name the events that follow from it.",
      });
    }
    if (goesOn || end || !reached.has(name)) return [];
    return finding({
      code: "dead-end",
      event: name,
      where: [name],
      what: `Nobody reacts to "${name}", and it is no declared end.`,
      remedy: "Add the reaction that is missing, or name it in ends().",
    });
  });
}

function checkScenarios(flow: Flow): FlowFinding[] {
  const found = new Map<string, FlowFinding>();
  let count = 0;
  for (const way of listScenarios(flow)) {
    if (++count > MAX_SCENARIOS) return [...found.values(), tooMany(flow)];
    for (const one of checkScenario(flow, way)) {
      const known = found.get(`${one.code} ${one.what}`);
      if (known === undefined || known.where.length > one.where.length)
        found.set(`${one.code} ${one.what}`, one);
    }
  }
  return [...found.values()];
}

function tooMany(flow: Flow): FlowFinding {
  return finding({
    code: "not-all-checked",
    event: flow.begins[0] ?? "",
    where: [],
    what: `There are more than ${MAX_SCENARIOS} ways through the flow; the others were not looked at.`,
    remedy: "Split it into flows that follow each other.",
  });
}
