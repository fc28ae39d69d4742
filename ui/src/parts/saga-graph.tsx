// A saga drawn from its definition: what comes after what, the path this instance took, and the undo of each step.
// It is a nested list that the style sheet draws as a graph, so it reads well without eyes and wraps on a phone.
import type { JSX } from "preact";
import type { GraphNode, StepView } from "../../../src/dashboard/api-types.ts";
import { formatMs, spaced } from "../format.ts";
import { Shape, toneOf, type Tone } from "./status.tsx";

const WORK: Readonly<Record<string, string>> = {
  send: "command",
  run: "function",
  tx: "in the transaction",
  wait: "waits for",
  delay: "delay",
  child: "child saga",
};

interface GraphProps {
  readonly nodes: readonly GraphNode[];
  readonly steps: readonly StepView[];
}

export function SagaGraph({ nodes, steps }: GraphProps): JSX.Element {
  return (
    <div class="scroller graph" tabIndex={0} role="group" aria-label="Graph of the saga">
      <Sequence nodes={nodes} find={latestByPath(steps)} />
    </div>
  );
}

/** For sagas whose definition the server does not know: the steps in their order. */
export function nodesOfSteps(steps: readonly StepView[]): GraphNode[] {
  return steps.map(({ step, undo }) => ({
    kind: "step",
    path: step,
    name: step,
    work: "run",
    target: null,
    undo: undo === null ? null : "run",
    undoTarget: null,
    pivot: false,
    timeoutMs: null,
  }));
}

type Find = (path: string) => StepView | undefined;

function latestByPath(steps: readonly StepView[]): Find {
  const found = new Map<string, StepView>();
  // Later rounds of a repeated step come later.
  for (const step of steps) found.set(step.step.replaceAll(/@\d+/g, ""), step);
  return (path) => found.get(path) ?? found.get(path.replaceAll(/@\d+/g, ""));
}

function Sequence({ nodes, find }: { nodes: readonly GraphNode[]; find: Find }): JSX.Element {
  return (
    <ol class="g-sequence">
      {nodes.map((node, index) => (
        <li key={index} class={isReached(node, find) ? "reached" : undefined}>
          <Node node={node} find={find} />
        </li>
      ))}
    </ol>
  );
}

function Node({ node, find }: { node: GraphNode; find: Find }): JSX.Element {
  switch (node.kind) {
    case "step":
      return <StepNode node={node} step={find(node.path)} />;
    case "group":
      return (
        <Frame title={`${node.name}: ${node.mode === "all" ? "all in parallel" : "the first that succeeds"}`}>
          <div class="g-parallel">
            {node.members.map((member, index) => (
              <Sequence key={index} nodes={[member]} find={find} />
            ))}
          </div>
        </Frame>
      );
    case "branch":
      return (
        <Frame title={`${node.name}: one of`}>
          <div class="g-parallel">
            {node.ways.map((way) => (
              <div key={way.name} class={node.chosen === way.name ? "g-way chosen" : "g-way"}>
                <p class="g-way-name">
                  {way.name}
                  {node.chosen === way.name ? " (taken)" : node.chosen === null ? "" : " (not taken)"}
                </p>
                {way.nodes.length === 0 ? (
                  <p class="g-what">nothing to do</p>
                ) : (
                  <Sequence nodes={way.nodes} find={find} />
                )}
              </div>
            ))}
          </div>
        </Frame>
      );
    case "repeat":
      return (
        <Frame title={`${node.name}: round ${node.round} of at most ${node.maxRounds}`}>
          <Sequence nodes={node.body} find={find} />
        </Frame>
      );
  }
}

function Frame({ title, children }: { title: string; children: JSX.Element }): JSX.Element {
  return (
    <div class="g-frame" role="group" aria-label={title}>
      <p class="g-frame-title">{title}</p>
      {children}
    </div>
  );
}

type StepNodeData = Extract<GraphNode, { kind: "step" }>;

function StepNode({ node, step }: { node: StepNodeData; step: StepView | undefined }): JSX.Element {
  const state = step?.status ?? "pending";
  const word = step === undefined ? "not reached" : wordOf(step);
  return (
    <div class="g-node">
      <div class={`g-do ${toneOfStep(step)} ${step === undefined || state === "pending" ? "future" : ""}`}>
        <div class="g-name">
          <Shape tone={toneOfStep(step)} />
          <strong>{node.name}</strong>
          <span class="g-word">{word}</span>
        </div>
        <div class="g-what">
          {WORK[node.work]}
          {node.target !== null && (
            <>
              {" "}
              <code>{node.target}</code>
            </>
          )}
          {node.timeoutMs !== null && ` · up to ${formatMs(node.timeoutMs)}`}
        </div>
        {step !== undefined && (step.durationMs !== null || step.attempts > 1) && (
          <div class="g-what">
            {[
              step.durationMs === null ? "" : formatMs(step.durationMs),
              step.attempts > 1 ? `${step.attempts} attempts` : "",
            ]
              .filter(Boolean)
              .join(" · ")}
          </div>
        )}
        {node.pivot && <div class="g-pivot">pivot: from here on forward only</div>}
      </div>
      <UndoNode node={node} step={step} />
    </div>
  );
}

function UndoNode({ node, step }: { node: StepNodeData; step: StepView | undefined }): JSX.Element | null {
  const undo = step?.undo ?? null;
  if (node.undo === null && undo === null) return null;
  const tone: Tone =
    undo === null
      ? "idle"
      : undo.status === "completed" || undo.status === "compensated"
        ? "ok"
        : toneOf(undo.status);
  return (
    <div class={`g-undo ${undo === null ? "future" : tone}`}>
      <div class="g-name">
        {undo !== null && <Shape tone={tone} />}
        <span>{node.undo === "none" ? "no undo" : "undo"}</span>
        {undo !== null && <span class="g-word">{spaced(undo.status)}</span>}
      </div>
      {node.undoTarget !== null && (
        <div class="g-what">{node.undo === "none" ? node.undoTarget : <code>{node.undoTarget}</code>}</div>
      )}
      {undo?.error !== null && undo?.error !== undefined && <div class="g-what">{undo.error}</div>}
    </div>
  );
}

/** The state of a step in words. A step of unknown outcome is neither done nor failed. */
export function wordOf(step: StepView): string {
  if (step.outcome === "unknown" && step.status !== "compensated")
    return `${spaced(step.status)}, outcome unknown`;
  return spaced(step.status);
}

export function toneOfStep(step: StepView | undefined): Tone {
  if (step === undefined) return "idle";
  return step.outcome === "unknown" && step.status !== "compensated" ? "warn" : toneOf(step.status);
}

function isReached(node: GraphNode, find: Find): boolean {
  switch (node.kind) {
    case "step": {
      const step = find(node.path);
      return step !== undefined && step.status !== "pending";
    }
    case "group":
      return node.members.some((member) => isReached(member, find));
    case "branch":
      return node.chosen !== null;
    case "repeat":
      return node.body.some((member) => isReached(member, find));
  }
}
