import {
  type Flow,
  groupBy,
  type Outcome,
  publishedBy,
  type Reaction,
  reactionsTo,
  type RecordedEvent,
} from "./flow.ts";

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
