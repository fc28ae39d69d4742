import {
  type EventRole,
  findDeclaredRole,
  type Flow,
  groupBy,
  type Outcome,
  publishedBy,
  type Reaction,
  reactionsTo,
  type RecordedEvent,
  roleIn,
} from "./flow.ts";

/**
 * A path is `running` until every reaction has an outcome, then `completed` if nothing failed. After the first failure
 * it is `compensating`, and in the end `compensated` if every effect was undone, else `failed`.
 */
export type FlowStatus = "running" | "completed" | "compensating" | "compensated" | "failed";

/** A service that has not reacted yet. */
export interface PendingReaction {
  readonly by: string;
  /** The possible outcomes; each is a list of events that are published together. */
  readonly oneOf: readonly (readonly string[])[];
  /** The event it has to react to. */
  readonly after: { readonly messageId: string; readonly type: string };
  readonly since: string;
}

/** A recorded event that contradicts the declaration. */
export interface Surprise {
  readonly messageId: string;
  readonly type: string;
  readonly what: string;
}

export interface Judgement {
  readonly status: FlowStatus;
  readonly steps: readonly FlowStep[];
  readonly waitsFor: readonly PendingReaction[];
  /** Message ids of effects that were not undone although the flow failed. Something may still undo them. */
  readonly notUndone: readonly string[];
  readonly surprises: readonly Surprise[];
}

/** Computes status, steps and pending reactions of a path. Pure; the order of `recorded` does not matter. */
export function judgePath(flow: Flow, recorded: readonly RecordedEvent[]): Judgement {
  const events = recorded.toSorted(compareTimes);
  const due = linkEvents(flow, events);
  const origin = new Map(due.flatMap((one) => one.came.map((event) => [event.messageId, one] as const)));
  const roles = new Map(
    events.map((event) => [event.messageId, roleFor(flow, event, origin.get(event.messageId))]),
  );
  const steps = orderSteps(events, roles, origin);
  const waitsFor = due.flatMap(findPending);
  const { notUndone, twice } = findUndone(flow, steps, due);
  const failed = steps.some(({ role }) => role === "failure");
  return {
    status: decideStatus({ failed, waiting: waitsFor.length > 0, left: notUndone.length > 0 }),
    steps,
    waitsFor,
    notUndone,
    surprises: [
      ...events.flatMap((event) => findSurprise(flow, event, origin.get(event.messageId))),
      ...twice,
    ],
  };
}

function decideStatus(seen: { failed: boolean; waiting: boolean; left: boolean }): FlowStatus {
  if (!seen.failed) return seen.waiting ? "running" : "completed";
  if (seen.waiting) return "compensating";
  return seen.left ? "failed" : "compensated";
}

function roleFor(flow: Flow, event: RecordedEvent, origin: DueReaction | undefined): EventRole {
  const outcome = origin?.reaction.outcomes.find(({ events }) => events.includes(event.type));
  return origin === undefined || outcome === undefined
    ? findDeclaredRole(flow, event.type)
    : roleIn(origin.reaction, outcome);
}

function findPending({ trigger, reaction, came, outcome }: DueReaction): PendingReaction[] {
  const missing = outcome?.events.filter((name) => came.every(({ type }) => type !== name));
  if (missing?.length === 0) return [];
  const { messageId, type, happenedAt } = trigger;
  return [
    {
      by: reaction.by,
      oneOf: missing === undefined ? reaction.outcomes.map(({ events }) => events) : [missing],
      after: { messageId, type },
      since: happenedAt,
    },
  ];
}

function findSurprise(flow: Flow, event: RecordedEvent, origin: DueReaction | undefined): Surprise[] {
  const { messageId, type, source } = event;
  const createSurprise = (what: string): Surprise[] => [{ messageId, type, what }];
  if (origin === undefined) {
    return flow.begins.includes(type)
      ? []
      : createSurprise("No recorded event leads to it; the start of the path may be missing.");
  }
  const { reaction, outcome, trigger } = origin;
  if (outcome?.events.includes(type) === false) {
    return createSurprise(`A second outcome of "${reaction.by}" reacting to "${trigger.type}".`);
  }
  return source === reaction.by
    ? []
    : createSurprise(`Published by "${source}"; the flow says "${reaction.by}".`);
}

function compareTimes(a: RecordedEvent, b: RecordedEvent): number {
  return a.happenedAt < b.happenedAt
    ? -1
    : a.happenedAt > b.happenedAt
      ? 1
      : a.messageId < b.messageId
        ? -1
        : 1;
}

interface UndoResult {
  /** Message ids of effects on a failed path that no reaction undid. */
  readonly notUndone: readonly string[];
  readonly twice: readonly { readonly messageId: string; readonly type: string; readonly what: string }[];
}

/** Finds undone effects. A correlation id may hold several paths, so a failure only affects the path of its first event. */
function findUndone(flow: Flow, steps: readonly FlowStep[], due: readonly DueReaction[]): UndoResult {
  const byId = new Map(steps.map((step) => [step.messageId, step]));
  const line = createAncestors(byId);
  const findRoot = (step: FlowStep): string => line(step).at(-1)?.messageId ?? step.messageId;
  const undone = new Set<string>();
  const twice: UndoResult["twice"][number][] = [];
  for (const { trigger, reaction, outcome } of due) {
    if (outcome === undefined || outcome.failure) continue;
    const cause = byId.get(trigger.messageId);
    for (const type of reaction.undoes) {
      const effect = findNearest(type, cause === undefined ? [] : line(cause), steps);
      if (effect === undefined) continue;
      if (undone.has(effect.messageId))
        twice.push({ messageId: effect.messageId, type, what: "Undone twice." });
      undone.add(effect.messageId);
    }
  }
  const failed = new Set(steps.filter(({ role }) => role === "failure").map(findRoot));
  const notUndone = steps
    .filter((step) => step.role === "effect" && !undone.has(step.messageId))
    .filter((step) => failed.has(findRoot(step)) && !Object.hasOwn(flow.noUndo, step.type))
    .filter((step) => line(step).every(({ role }) => role !== "failure"))
    .map(({ messageId }) => messageId);
  return { notUndone, twice };
}

/** Finds the effect among the causes, else a concurrent one. */
function findNearest(
  type: string,
  line: readonly FlowStep[],
  steps: readonly FlowStep[],
): FlowStep | undefined {
  return line.find((step) => step.type === type) ?? steps.find((step) => step.type === type);
}

/** Returns a function that lists a step and its chain of causes, nearest first. */
function createAncestors(byId: ReadonlyMap<string, FlowStep>): (step: FlowStep) => readonly FlowStep[] {
  return (step) => {
    const line: FlowStep[] = [];
    const seen = new Set<string>();
    for (let at: FlowStep | undefined = step; at !== undefined && !seen.has(at.messageId);) {
      line.push(at);
      seen.add(at.messageId);
      at = at.parent === null ? undefined : byId.get(at.parent);
    }
    return line;
  };
}

/** An event of a path, with its role and cause. */
export interface FlowStep extends RecordedEvent {
  readonly role: EventRole;
  /** Message id of the event that caused it; null if there is no such event in this path. */
  readonly parent: string | null;
  /** Milliseconds between its parent and it; null without a parent. */
  readonly sinceParentMs: number | null;
  /** Milliseconds since the first event of the path. */
  readonly sinceBeginMs: number;
}

/** Orders events by time, but a cause always before its effects, because database clocks may differ. */
export function orderSteps(
  events: readonly RecordedEvent[],
  roles: ReadonlyMap<string, EventRole>,
  origin: ReadonlyMap<string, DueReaction>,
): readonly FlowStep[] {
  const positions = computePositions(events, origin);
  const ordered = events.toSorted((a, b) =>
    comparePositions(positions.get(a.messageId), positions.get(b.messageId)),
  );
  const begin = toMs(ordered[0]);
  return ordered.map((event) => {
    const trigger = origin.get(event.messageId)?.trigger;
    return {
      ...event,
      role: roles.get(event.messageId) ?? "unknown",
      parent: trigger?.messageId ?? null,
      sinceParentMs: trigger === undefined ? null : Math.max(0, toMs(event) - toMs(trigger)),
      sinceBeginMs: Math.max(0, toMs(event) - begin),
    };
  });
}

interface StepPosition {
  readonly at: string;
  readonly depth: number;
}

/** Computes the sort position of each event: never earlier than the position of its cause. */
function computePositions(
  events: readonly RecordedEvent[],
  origin: ReadonlyMap<string, DueReaction>,
): ReadonlyMap<string, StepPosition> {
  const positions = new Map<string, StepPosition>();
  const computePosition = (event: RecordedEvent): StepPosition => {
    const known = positions.get(event.messageId);
    if (known !== undefined) return known;
    const own = { at: event.happenedAt, depth: 0 };
    positions.set(event.messageId, own); // ends the recursion for a causation cycle
    const trigger = origin.get(event.messageId)?.trigger;
    const parent = trigger === undefined ? undefined : computePosition(trigger);
    const position =
      parent === undefined ? own : { at: parent.at > own.at ? parent.at : own.at, depth: parent.depth + 1 };
    positions.set(event.messageId, position);
    return position;
  };
  for (const event of events) computePosition(event);
  return positions;
}

function comparePositions(a: StepPosition | undefined, b: StepPosition | undefined): number {
  if (a === undefined || b === undefined || a.at === b.at) return (a?.depth ?? 0) - (b?.depth ?? 0);
  return a.at < b.at ? -1 : 1;
}

function toMs(event: RecordedEvent | undefined): number {
  return event === undefined ? 0 : Date.parse(event.happenedAt);
}

/** A reaction that is due because its trigger happened, with the events it has published so far. */
export interface DueReaction {
  readonly trigger: RecordedEvent;
  readonly reaction: Reaction;
  readonly came: readonly RecordedEvent[];
  /** The outcome that the published events belong to; undefined before the first event. */
  readonly outcome: Outcome | undefined;
}

interface OpenReaction {
  readonly trigger: RecordedEvent;
  readonly reaction: Reaction;
  readonly came: RecordedEvent[];
}

/**
 * Assigns each event to the reaction that published it. The causation id decides if the event was published while its
 * cause was handled. Otherwise (a webhook, a command in between) a reaction takes the first unassigned event of a
 * matching type; events with the trigger's key are assigned first.
 */
export function linkEvents(flow: Flow, events: readonly RecordedEvent[]): readonly DueReaction[] {
  const due = events.flatMap((trigger) =>
    reactionsTo(flow, trigger.type).map((reaction): OpenReaction => ({ trigger, reaction, came: [] })),
  );
  const ids = new Set(events.map(({ messageId }) => messageId));
  const byTrigger = groupBy(due, ({ trigger }) => trigger.messageId);
  const loose = new Set<RecordedEvent>();
  for (const event of events) {
    const claim = findReaction(byTrigger.get(event.causationId ?? "") ?? [], event);
    if (claim !== undefined) claim.came.push(event);
    else if (event.causationId === null || !ids.has(event.causationId)) loose.add(event);
  }
  for (const sameKey of [true, false]) {
    for (const claim of due) takeLoose(claim, loose, sameKey);
  }
  return due.map((claim) => ({ ...claim, outcome: findOutcome(claim) }));
}

function findReaction(caused: readonly OpenReaction[], event: RecordedEvent): OpenReaction | undefined {
  const fitting = caused.filter(({ reaction }) => publishedBy(reaction).includes(event.type));
  return fitting.find(({ reaction }) => reaction.by === event.source) ?? fitting[0];
}

function takeLoose(claim: OpenReaction, loose: Set<RecordedEvent>, sameKey: boolean): void {
  for (const event of loose) {
    const { trigger, reaction, came } = claim;
    const missing = findOutcome(claim)?.events.filter((name) => came.every(({ type }) => type !== name));
    const fits = (missing ?? publishedBy(reaction)).includes(event.type);
    const nearEnough = !sameKey || (event.key !== null && event.key === trigger.key);
    if (!fits || !nearEnough || event === trigger) continue;
    came.push(event);
    loose.delete(event);
  }
}

function findOutcome({ reaction, came }: OpenReaction): Outcome | undefined {
  return reaction.outcomes.find(({ events }) => came.some(({ type }) => events.includes(type)));
}
