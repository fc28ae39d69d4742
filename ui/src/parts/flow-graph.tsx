// A declared choreography in layers: events, the consumers that react to them, and the events that come out.
import type { JSX } from "preact";
import type { FlowView } from "../../../src/dashboard/api-types.ts";
import { formatCount } from "../format.ts";
import { hrefTo } from "../router.ts";

interface Box {
  readonly id: string;
  readonly kind: "event" | "reaction";
  readonly title: string;
  readonly note: string;
  readonly isFailure: boolean;
  layer: number;
  x: number;
  y: number;
}

interface Edge {
  readonly from: string;
  readonly to: string;
  readonly isFailure: boolean;
}

const WIDTH = 172;
const HEIGHT = 52;
const GAP_X = 44;
const GAP_Y = 16;

export function FlowGraph({ flow }: { flow: FlowView }): JSX.Element {
  const { boxes, edges, width, height } = layOut(flow);
  const byId = new Map(boxes.map((box) => [box.id, box]));
  return (
    <div class="scroller" tabIndex={0} role="group" aria-label={`Graph of the flow ${flow.name}`}>
      <div class="flow" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {edges.map(({ from, to, isFailure }) => (
            <path
              key={`${from} ${to}`}
              class={isFailure ? "failure" : undefined}
              d={pathOf(byId.get(from), byId.get(to))}
            />
          ))}
        </svg>
        <ul>
          {boxes.map((box) => (
            <li
              key={box.id}
              class={`f-box ${box.kind} ${box.isFailure ? "failure" : ""}`}
              style={{ left: `${box.x}px`, top: `${box.y}px` }}
            >
              {box.kind === "event" ? (
                <a href={hrefTo(["messages"], { type: box.title })}>{box.title}</a>
              ) : (
                <strong>{box.title}</strong>
              )}
              <span class="muted small">{box.note}</span>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}

function layOut(flow: FlowView): { boxes: Box[]; edges: Edge[]; width: number; height: number } {
  const boxes = new Map<string, Box>();
  const edges: Edge[] = [];
  const failures = new Set(
    flow.reactions.flatMap(({ outcomes }) =>
      outcomes.filter(({ failure }) => failure).flatMap(({ events }) => events),
    ),
  );
  const counts = new Map(flow.events.map(({ type, recent }) => [type, recent]));
  const event = (type: string): string => {
    const id = `event ${type}`;
    const recent = counts.get(type);
    const role = flow.begins.includes(type) ? "begins · " : flow.ends.includes(type) ? "ends · " : "";
    const note = `${role}${recent === undefined ? "not recorded" : `${formatCount(recent)} an hour`}`;
    if (!boxes.has(id)) {
      boxes.set(id, {
        id,
        kind: "event",
        title: type,
        note,
        isFailure: failures.has(type),
        layer: 0,
        x: 0,
        y: 0,
      });
    }
    return id;
  };
  for (const type of flow.begins) event(type);
  for (const { on, by, undoes, outcomes } of flow.reactions) {
    const id = `reaction ${by} ${on}`;
    const note = undoes.length > 0 ? `undoes ${undoes.join(", ")}` : "reacts";
    const source = event(on);
    boxes.set(id, { id, kind: "reaction", title: by, note, isFailure: false, layer: 0, x: 0, y: 0 });
    edges.push({ from: source, to: id, isFailure: false });
    for (const { events, failure } of outcomes) {
      for (const type of events) edges.push({ from: id, to: event(type), isFailure: failure });
    }
  }
  return place([...boxes.values()], edges);
}

/** Longest path from the beginning; a cycle ends the search at the number of boxes. Then the order inside each layer. */
function place(
  boxes: Box[],
  edges: readonly Edge[],
): { boxes: Box[]; edges: Edge[]; width: number; height: number } {
  const byId = new Map(boxes.map((box) => [box.id, box]));
  for (let round = 0; round < boxes.length; round++) {
    let moved = false;
    for (const { from, to } of edges) {
      const source = byId.get(from);
      const target = byId.get(to);
      if (source === undefined || target === undefined || target.layer > source.layer) continue;
      if (source.layer + 1 >= boxes.length) continue;
      target.layer = source.layer + 1;
      moved = true;
    }
    if (!moved) break;
  }
  const layers = [...new Set(boxes.map(({ layer }) => layer))].sort((a, b) => a - b);
  let most = 0;
  for (const [column, layer] of layers.entries()) {
    const members = boxes.filter((box) => box.layer === layer);
    members.sort((a, b) => centre(a, edges, byId) - centre(b, edges, byId));
    for (const [row, box] of members.entries()) {
      box.x = column * (WIDTH + GAP_X);
      box.y = row * (HEIGHT + GAP_Y);
    }
    most = Math.max(most, members.length);
  }
  return {
    boxes,
    edges: [...edges],
    width: layers.length * (WIDTH + GAP_X) - GAP_X,
    height: most * (HEIGHT + GAP_Y) - GAP_Y,
  };
}

/** The mean height of what leads to a box. */
function centre(box: Box, edges: readonly Edge[], byId: ReadonlyMap<string, Box>): number {
  const sources = edges.filter(({ to }) => to === box.id).map(({ from }) => byId.get(from)?.y ?? 0);
  return sources.length === 0 ? 0 : sources.reduce((sum, y) => sum + y, 0) / sources.length;
}

function pathOf(from: Box | undefined, to: Box | undefined): string {
  if (from === undefined || to === undefined) return "";
  const startX = from.x + WIDTH;
  const startY = from.y + HEIGHT / 2;
  const endY = to.y + HEIGHT / 2;
  const bend = GAP_X / 2;
  // An edge that leads back goes below the boxes.
  if (to.x <= from.x) return `M${startX} ${startY}h12v${HEIGHT / 2 + 8}H${to.x - 12}V${endY}h12`;
  return `M${startX} ${startY}C${startX + bend} ${startY} ${to.x - bend} ${endY} ${to.x} ${endY}`;
}
