import { durationText, mermaidText } from "../telemetry/index.ts";
import type { FlowPath } from "./flow-path.ts";
import { findDeclaredRole, type Flow, reactionsTo } from "./flow.ts";
import type { FlowStep } from "./judge-path.ts";

/** Draws a flow as a Mermaid flowchart: failures in red, compensations dashed, first and final events rounded. */
export function flowDiagram(flow: Flow): string {
  const names = flow.events.map(({ name }) => name);
  const id = (event: string): string => `e${names.indexOf(event) + 1}`;
  return [
    "flowchart TD",
    ...names.map((name) => `  ${id(name)}${shapeLine(flow, name)}`),
    ...names.flatMap((name) => arrows(flow, name, id)),
    ...classes(flow, names, id),
  ].join("\n");
}

function shapeLine(flow: Flow, name: string): string {
  const edge = flow.begins.includes(name) || flow.ends.includes(name);
  return edge ? `(["${mermaidText(name)}"])` : `["${mermaidText(name)}"]`;
}

function arrows(flow: Flow, from: string, id: (event: string) => string): string[] {
  return reactionsTo(flow, from).flatMap(({ by, outcomes, undoes }) =>
    outcomes.flatMap(({ events, failure }) =>
      events.map((to) => {
        const undoing = undoes.length > 0 && !failure;
        const label = failure ? `${by} fails` : undoing ? `${by} undoes ${undoes.join(", ")}` : by;
        return `  ${id(from)} ${undoing ? "-.->" : "-->"}|"${mermaidText(label)}"| ${id(to)}`;
      }),
    ),
  );
}

function classes(flow: Flow, names: readonly string[], id: (event: string) => string): string[] {
  const styles = {
    failure: "fill:#fde2e1,stroke:#b3261e,color:#410e0b",
    undo: "fill:#fff4d6,stroke:#8a6100,color:#3d2b00,stroke-dasharray:4 3",
  } as const;
  return (["failure", "undo"] as const).flatMap((role) => {
    const members = names.filter((name) => findDeclaredRole(flow, name) === role).map(id);
    if (members.length === 0) return [];
    return [`  classDef ${role} ${styles[role]}`, `  class ${members.join(",")} ${role}`];
  });
}

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
