import { durationText, mermaidText } from "../telemetry/index.ts";
import type { FlowStep } from "./path-steps.ts";
import type { FlowPath } from "./flow-path.ts";

/** Draws a path as a Mermaid sequence diagram: publisher, time and receivers of each event, and pending reactions. */
export function flowPathDiagram(path: FlowPath): string {
  const services = [
    ...new Set([...path.steps.map(({ source }) => source), ...path.waitsFor.map(({ by }) => by)]),
  ];
  const id = (service: string): string => `s${services.indexOf(service) + 1}`;
  return [
    "sequenceDiagram",
    `  title ${mermaidText(`${path.flow} ${path.correlationId}: ${path.status}`)}`,
    ...services.map((service) => `  participant ${id(service)} as ${mermaidText(service)}`),
    ...path.steps.flatMap((step) => lines(path, step, id)),
    ...path.waitsFor.map(
      ({ by, oneOf }) => `  Note over ${id(by)}: waits for ${mermaidText(oneOf.map(joinNames).join(" or "))}`,
    ),
  ].join("\n");
}

function lines(path: FlowPath, step: FlowStep, id: (service: string) => string): string[] {
  const arrow = { failure: "-x", undo: "-->>", begin: "->>", effect: "->>", unknown: "->>" }[step.role];
  const label = mermaidText(`${step.type} +${durationText(step.sinceBeginMs)}`);
  const reacting = [
    ...path.steps.filter(({ parent }) => parent === step.messageId).map(({ source }) => source),
    ...path.waitsFor.filter(({ after }) => after.messageId === step.messageId).map(({ by }) => by),
  ];
  if (reacting.length === 0)
    return [`  Note over ${id(step.source)}: ${step.role === "undo" ? "undone by " : ""}${label}`];
  return [...new Set(reacting)].map((service) => `  ${id(step.source)}${arrow}${id(service)}: ${label}`);
}

function joinNames(events: readonly string[]): string {
  return events.join(" + ");
}
