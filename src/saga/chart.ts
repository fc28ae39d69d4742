import { durationText, mermaidText } from "../telemetry/index.ts";
import type { GroupNode, Node, RepeatNode, SagaDefinition, StepNode, Undo, Work } from "./definition.ts";

/** What is written and coloured beside a node; nothing where only the definition is drawn. */
export interface Marks {
  readonly step: (path: string) => Mark;
  readonly undo: (path: string) => Mark;
}

export interface Mark {
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
export class Chart {
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

  /** The nodes of each look, for the class lines at the end. */
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
      return "runs in the transaction";
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
      return "runs in the transaction";
    case "child":
      return "the child undoes itself";
    case "none":
      return "nothing";
  }
}
