import { durationText, mermaidText } from "../telemetry/index.ts";
import { Chart, type Mark } from "./chart.ts";
import { stripRound, type SagaDefinition } from "./definition.ts";
import type { Effort, SagaState, SagaStatus, StepRecord } from "./state.ts";

/** What a picture shows of one instance. */
export interface DrawnInstance {
  readonly id: string;
  readonly type: string;
  readonly key: string;
  readonly status: SagaStatus;
  readonly state: SagaState;
}

const styles: Readonly<Record<string, string>> = {
  pivot: "stroke-width:4px",
  undo: "fill:#fff4d6,stroke:#8a6100,color:#3d2b00,stroke-dasharray:4 3",
  done: "fill:#dff3e1,stroke:#1b6e2b,color:#06300f",
  open: "fill:#dbe9fb,stroke:#1d4f91,color:#061d3d",
  failed: "fill:#fde2e1,stroke:#b3261e,color:#410e0b",
  undone: "fill:#fff4d6,stroke:#8a6100,color:#3d2b00",
  idle: "fill:#f4f4f4,stroke:#bbbbbb,color:#777777",
};

/** A definition as a Mermaid flowchart: a shape for each kind of step, undo dashed, the pivot with a thick border. */
export function sagaDiagram(definition: SagaDefinition): string {
  const noMark = (): Mark => ({});
  const chart = new Chart({ step: noMark, undo: noMark });
  return addStyles(chart.draw(definition, "start", "completed"), chart);
}

/** The same for one instance: what happened, how long after its start, how long it took; what is grey has not happened. */
export function instanceDiagram(definition: SagaDefinition, instance: DrawnInstance): string {
  const { records, choices, rounds } = instance.state;
  const latest = new Map<string, { readonly place: string; readonly record: StepRecord }>();
  for (const [place, record] of Object.entries(records)) {
    const known = latest.get(stripRound(place));
    if (known === undefined || known.record.unit <= record.unit)
      latest.set(stripRound(place), { place, record });
  }
  const beganMs = findStartMs(instance.state);
  const chart = new Chart({
    step: (path) => {
      const found = latest.get(path);
      if (found !== undefined) return stepMark(found.place, found.record, beganMs);
      const way = choices[path];
      if (way !== undefined) return { note: way === null ? "not taken" : `took ${way}`, look: "done" };
      return rounds[path] === undefined ? { look: "idle" } : {};
    },
    undo: (path) => {
      const undo = latest.get(path)?.record.undo;
      return undo === undefined ? { look: "idle" } : undoMark(undo, beganMs);
    },
  });
  return addStyles(chart.draw(definition, instance.key, instance.status), chart);
}

/** One instance as a Mermaid gantt chart: when each step and each undo ran, and for how long. Needs no definition. */
export function instanceTimeline({ type, key, status, state }: DrawnInstance): string {
  const lastMs = Math.max(0, ...Object.values(state.records).flatMap(listTimes));
  const entries = Object.entries(state.records).sort(([, a], [, b]) => a.startedAtMs - b.startedAtMs);
  const undone = entries
    .flatMap(([place, { undo }]) => (undo === undefined ? [] : [[place, undo] as const]))
    .sort(([, a], [, b]) => a.startedAtMs - b.startedAtMs);
  const bars = (section: string, efforts: readonly (readonly [string, Effort, string])[]): string[] =>
    efforts.length === 0
      ? []
      : [`  section ${section}`, ...efforts.map(([place, effort, tag]) => bar(place, effort, tag, lastMs))];
  return [
    "gantt",
    `  title ${barText(`${type} ${key}, ${status}`)}`,
    "  dateFormat x",
    "  axisFormat %H:%M:%S",
    ...bars(
      "Steps",
      entries.map(([place, record]) => [place, record, ganttTag(record.status)]),
    ),
    ...bars(
      "Undo",
      undone.map(([place, undo]) => [`undo ${place}`, undo, ganttTag(undo.status)]),
    ),
  ].join("\n");
}

function stepMark(place: string, record: StepRecord, beganMs: number): Mark {
  const round = place.includes("@") ? `round ${place.slice(place.indexOf("@") + 1)}, ` : "";
  return {
    note: `${round}${record.status} ${describeTimes(record, beganMs)}`,
    look: styleForStatus(record.status),
  };
}

function undoMark(undo: NonNullable<StepRecord["undo"]>, beganMs: number): Mark {
  const look = undo.status === "failed" ? "failed" : undo.status === "in_progress" ? "open" : "undone";
  return { note: `${undo.status} ${describeTimes(undo, beganMs)}`, look };
}

function describeTimes({ startedAtMs, endedAtMs, attempt, error }: Effort, beganMs: number): string {
  const took = endedAtMs === undefined ? "" : `, took ${durationText(endedAtMs - startedAtMs)}`;
  const tries = attempt > 1 ? `, attempt ${attempt}` : "";
  const why = error === undefined ? "" : `: ${error.slice(0, 80)}`;
  return `+${durationText(startedAtMs - beganMs)}${took}${tries}${why}`;
}

function styleForStatus(status: StepRecord["status"]): string {
  switch (status) {
    case "completed":
      return "done";
    case "failed":
      return "failed";
    case "in_progress":
      return "open";
    case "compensating":
    case "compensated":
      return "undone";
    case "skipped":
      return "idle";
  }
}

function findStartMs({ records }: SagaState): number {
  const began = Object.values(records).map(({ startedAtMs }) => startedAtMs);
  return began.length === 0 ? 0 : Math.min(...began);
}

function listTimes({ startedAtMs, endedAtMs, undo }: StepRecord): number[] {
  return [startedAtMs, endedAtMs ?? 0, undo?.startedAtMs ?? 0, undo?.endedAtMs ?? 0];
}

function ganttTag(status: string): string {
  if (status === "failed") return "crit, ";
  return status === "in_progress" ? "active, " : "done, ";
}

// Something under way is drawn up to the latest time that is known; a bar needs some width to be seen.
function bar(
  place: string,
  { startedAtMs, endedAtMs, attempt }: Effort,
  tag: string,
  lastMs: number,
): string {
  const fromMs = Math.round(startedAtMs);
  const toMs = Math.max(fromMs + 1, Math.round(endedAtMs ?? lastMs));
  const took = endedAtMs === undefined ? "under way" : durationText(endedAtMs - startedAtMs);
  const tries = attempt > 1 ? `, attempt ${attempt}` : "";
  const name = place.replace("@", " round ");
  return `  ${barText(`${name} ${took}${tries}`)} :${tag}${fromMs}, ${toMs}`;
}

function barText(text: string): string {
  return mermaidText(text).replaceAll(":", "_");
}

function addStyles(lines: readonly string[], chart: Chart): string {
  const used = [...chart.styles()].flatMap(([look, ids]) => [
    `  classDef ${look} ${styles[look] ?? ""}`,
    `  class ${ids.join(",")} ${look}`,
  ]);
  return [...lines, ...used].join("\n");
}
