import { durationText, mermaidText } from "../telemetry/index.ts";
import {
  type GroupNode,
  type Node,
  type RepeatNode,
  type SagaDefinition,
  type StepNode,
  stripRound,
  type Undo,
  type Work,
} from "./definition.ts";
import type { Effort, SagaState, SagaStatus, StepRecord } from "./state.ts";

/** The parts of an instance that a diagram shows. */
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

/** Draws a definition as a Mermaid flowchart: one shape per kind of step, dashed undos, a thick border for the pivot. */
export function sagaDiagram(definition: SagaDefinition): string {
  const noMark = (): Mark => ({});
  const chart = new Chart({ step: noMark, undo: noMark });
  return addStyles(chart.draw(definition, "start", "completed"), chart);
}

/** Draws one instance as a Mermaid flowchart with status, start offset and duration of each step. Grey steps have not run. */
export function instanceDiagram(definition: SagaDefinition, instance: DrawnInstance): string {
  const { records, choices, rounds } = instance.state;
  const latest = new Map<string, { readonly stepPath: string; readonly record: StepRecord }>();
  for (const [stepPath, record] of Object.entries(records)) {
    const known = latest.get(stripRound(stepPath));
    if (known === undefined || known.record.unit <= record.unit)
      latest.set(stripRound(stepPath), { stepPath, record });
  }
  const beganMs = findStartMs(instance.state);
  const chart = new Chart({
    step: (path) => {
      const found = latest.get(path);
      if (found !== undefined) return stepMark(found.stepPath, found.record, beganMs);
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

/** Draws one instance as a Mermaid Gantt chart of its steps and undos. Needs no definition. */
export function instanceTimeline({ type, key, status, state }: DrawnInstance): string {
  const lastMs = Math.max(0, ...Object.values(state.records).flatMap(listTimes));
  const entries = Object.entries(state.records).sort(([, a], [, b]) => a.startedAtMs - b.startedAtMs);
  const undone = entries
    .flatMap(([stepPath, { undo }]) => (undo === undefined ? [] : [[stepPath, undo] as const]))
    .sort(([, a], [, b]) => a.startedAtMs - b.startedAtMs);
  const bars = (section: string, efforts: readonly (readonly [string, Effort, string])[]): string[] =>
    efforts.length === 0
      ? []
      : [
          `  section ${section}`,
          ...efforts.map(([stepPath, effort, tag]) => bar(stepPath, effort, tag, lastMs)),
        ];
  return [
    "gantt",
    `  title ${barText(`${type} ${key}, ${status}`)}`,
    "  dateFormat x",
    "  axisFormat %H:%M:%S",
    ...bars(
      "Steps",
      entries.map(([stepPath, record]) => [stepPath, record, ganttTag(record.status)]),
    ),
    ...bars(
      "Undo",
      undone.map(([stepPath, undo]) => [`undo ${stepPath}`, undo, ganttTag(undo.status)]),
    ),
  ].join("\n");
}

function stepMark(stepPath: string, record: StepRecord, beganMs: number): Mark {
  const round = stepPath.includes("@") ? `round ${stepPath.slice(stepPath.indexOf("@") + 1)}, ` : "";
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

// A step in flight is drawn up to the latest known time. Bars have a minimum width.
function bar(
  stepPath: string,
  { startedAtMs, endedAtMs, attempt }: Effort,
  tag: string,
  lastMs: number,
): string {
  const fromMs = Math.round(startedAtMs);
  const toMs = Math.max(fromMs + 1, Math.round(endedAtMs ?? lastMs));
  const took = endedAtMs === undefined ? "running" : durationText(endedAtMs - startedAtMs);
  const tries = attempt > 1 ? `, attempt ${attempt}` : "";
  const name = stepPath.replace("@", " round ");
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

/** Note and style of a node. Empty if only the definition is drawn. */
interface Marks {
  readonly step: (path: string) => Mark;
  readonly undo: (path: string) => Mark;
}

interface Mark {
  readonly note?: string;
  readonly look?: string;
}

interface Exit {
  readonly id: string;
  readonly label?: string;
}

interface ChartFragment {
  readonly lines: readonly string[];
  readonly entry: string;
  readonly exits: readonly Exit[];
}

/** Draws the nodes of a definition as a Mermaid flowchart, line by line. */
class Chart {
  readonly #marks: Marks;
  readonly #edges: string[] = [];
  readonly #styles = new Map<string, string[]>();
  #count = 0;

  constructor(marks: Marks) {
    this.#marks = marks;
  }

  draw({ name, version, nodes }: SagaDefinition, title: string, end: string): string[] {
    const [first, ...rest] = [
      this.#drawSingle(`(["${label(title, `${name} ${version}`)}"])`),
      ...this.#drawAll(nodes),
    ];
    const last = this.#drawSingle(`(["${mermaidText(end)}"])`);
    const drawn = [first, ...rest, last].filter((one) => one !== undefined);
    this.#chain(drawn);
    return ["flowchart TD", ...indentLines(drawn.flatMap(({ lines }) => lines)), ...indentLines(this.#edges)];
  }

  /** Node ids by style, for the class lines at the end. */
  styles(): ReadonlyMap<string, readonly string[]> {
    return this.#styles;
  }

  #drawAll(nodes: readonly Node[]): ChartFragment[] {
    return nodes.map((node) => this.#drawNode(node));
  }

  #drawNode(node: Node): ChartFragment {
    switch (node.kind) {
      case "step":
        return this.#drawStep(node, node.name);
      case "group":
        return this.#drawGroup(node);
      case "branch":
        return this.#drawBranch(node);
      case "repeat":
        return this.#drawRepeat(node);
    }
  }

  #drawSingle(shape: string): ChartFragment {
    const id = this.#nextId("n");
    return { lines: [`${id}${shape}`], entry: id, exits: [{ id }] };
  }

  #drawStep(step: StepNode, path: string): ChartFragment {
    const id = this.#nextId("s");
    const mark = this.#marks.step(path);
    const pivot = step.pivot ? ["pivot: no way back from here"] : [];
    const open = step.undo?.kind === "none" ? [`no undo: ${step.undo.reason}`] : [];
    const lines = [
      `${id}${shape(step.work, label(step.name, describeStep(step), ...pivot, ...open, mark.note))}`,
    ];
    this.#setStyle(id, mark.look ?? (step.pivot ? "pivot" : undefined));
    if (step.undo !== null && step.undo.kind !== "none") lines.push(this.#drawUndo(id, step.undo, path));
    return { lines, entry: id, exits: [{ id }] };
  }

  #drawUndo(step: string, undo: Undo, path: string): string {
    const id = this.#nextId("u");
    const mark = this.#marks.undo(path);
    this.#setStyle(id, mark.look ?? "undo");
    this.#edges.push(`${step} -.->|"undo"| ${id}`);
    return `${id}["${label(undoText(undo), mark.note)}"]`;
  }

  #drawGroup({ name, mode, members, whenOneFails }: GroupNode): ChartFragment {
    const id = this.#nextId("g");
    const rule =
      mode === "any"
        ? "the first that succeeds"
        : whenOneFails === "abandon"
          ? "all, or none at once"
          : "all";
    const inside = members.flatMap((step) => this.#drawStep(step, `${name}.${step.name}`).lines);
    return this.#drawFrame(id, `${name}: ${rule}`, inside);
  }

  #drawRepeat({ name, body, maxRounds }: RepeatNode): ChartFragment {
    const id = this.#nextId("r");
    const inside = this.#drawAll(body);
    this.#chain(inside);
    const [first, last] = [inside[0], inside.at(-1)];
    for (const exit of last?.exits ?? []) this.#addEdge({ id: exit.id, label: "again" }, first?.entry ?? id);
    const lines = inside.flatMap((one) => one.lines);
    return this.#drawFrame(id, `${name}: again until it is over, at most ${maxRounds} times`, lines);
  }

  #drawFrame(id: string, title: string, inside: readonly string[]): ChartFragment {
    const lines = [`subgraph ${id}["${mermaidText(title)}"]`, ...indentLines(inside), "end"];
    return { lines, entry: id, exits: [{ id }] };
  }

  #drawBranch({ name, ways }: Extract<Node, { kind: "branch" }>): ChartFragment {
    const id = this.#nextId("b");
    const mark = this.#marks.step(name);
    this.#setStyle(id, mark.look);
    const lines = [`${id}{"${label(name, mark.note)}"}`];
    const exits: Exit[] = [];
    for (const [way, nodes] of Object.entries(ways)) {
      const drawn = this.#drawAll(nodes);
      this.#chain(drawn);
      lines.push(...drawn.flatMap((one) => one.lines));
      const [first, last] = [drawn[0], drawn.at(-1)];
      if (first === undefined) exits.push({ id, label: way });
      else this.#addEdge({ id, label: way }, first.entry);
      exits.push(...(last?.exits ?? []));
    }
    return { lines, entry: id, exits: [...exits, { id, label: "otherwise" }] };
  }

  #chain(drawn: readonly ChartFragment[]): void {
    for (const [index, one] of drawn.entries()) {
      const next = drawn[index + 1];
      if (next !== undefined) for (const exit of one.exits) this.#addEdge(exit, next.entry);
    }
  }

  #addEdge({ id, label: text }: Exit, to: string): void {
    this.#edges.push(`${id} -->${text === undefined ? "" : `|"${mermaidText(text)}"|`} ${to}`);
  }

  #setStyle(id: string, look: string | undefined): void {
    if (look !== undefined) this.#styles.set(look, [...(this.#styles.get(look) ?? []), id]);
  }

  #nextId(kind: string): string {
    this.#count += 1;
    return `${kind}${this.#count}`;
  }
}

function indentLines(lines: readonly string[]): string[] {
  return lines.map((line) => `  ${line}`);
}

function label(...parts: readonly (string | undefined)[]): string {
  return parts
    .filter((part) => part !== undefined && part !== "")
    .map((part) => mermaidText(part ?? ""))
    .join("<br/>");
}

function shape(work: Work, text: string): string {
  switch (work.kind) {
    case "send":
      return `["${text}"]`;
    case "run":
      return `("${text}")`;
    case "tx":
      return `[("${text}")]`;
    case "wait":
    case "delay":
      return `{{"${text}"}}`;
    case "child":
      return `[["${text}"]]`;
  }
}

function describeStep({ work, timeoutMs }: StepNode): string {
  const within = timeoutMs === null ? "" : `, within ${durationText(timeoutMs)}`;
  switch (work.kind) {
    case "send":
      return `sends ${work.command.name}${within}`;
    case "run":
      return `runs here${within}`;
    case "tx":
      return work.publishes === undefined ? "runs in the transaction" : `publishes ${work.publishes.name}`;
    case "wait":
      return `waits for ${work.event.name}${within}${work.onTimeout === "continue" ? ", then goes on" : ""}`;
    case "delay":
      return "waits for its time";
    case "child":
      return `saga ${work.saga.name} ${work.saga.version}${within}`;
  }
}

function undoText(undo: Undo): string {
  switch (undo.kind) {
    case "send":
      return `sends ${undo.command.name}`;
    case "run":
      return "runs here";
    case "tx":
      return undo.publishes === undefined ? "runs in the transaction" : `publishes ${undo.publishes.name}`;
    case "child":
      return "the child undoes itself";
    case "none":
      return "nothing";
  }
}
