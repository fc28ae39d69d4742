import type { Destinations } from "./destinations.ts";
import type { SendOutcome } from "./publish-batch.ts";
import { failureText } from "./failures.ts";

/** What is sent together. A topic on trial travels by itself, so that nobody else waits for its broker. */
export interface Lot<R> {
  readonly rows: readonly R[];
  /** The topic this lot finds out about. */
  readonly trial?: string;
}

interface Addressed {
  readonly topic: string;
}

/** Sorts what was fetched: into one lot for all that flows, one for each topic on trial, and what has to wait. */
export function lotsOf<R extends Addressed>(
  rows: readonly R[],
  destinations: Destinations,
): { readonly lots: readonly Lot<R>[]; readonly waiting: readonly R[] } {
  const byTopic = new Map<string, R[]>();
  for (const row of rows) {
    const known = byTopic.get(row.topic);
    if (known === undefined) byTopic.set(row.topic, [row]);
    else known.push(row);
  }
  const trials: Lot<R>[] = [];
  const flowing = new Set<string>();
  const waiting: R[] = [];
  for (const [topic, own] of byTopic) {
    const given = destinations.admit(topic);
    if (given === "all") flowing.add(topic);
    else if (given === "none") waiting.push(...own);
    else {
      const count = given === "probe" ? 1 : own.length;
      trials.push({ rows: own.slice(0, count), trial: topic });
      waiting.push(...own.slice(count));
    }
  }
  const together = trials.length + waiting.length === 0 ? rows : rows.filter((row) => flowing.has(row.topic));
  return { lots: together.length === 0 ? trials : [{ rows: together }, ...trials], waiting };
}

/** Tells the destinations what their broker did, and returns how long the messages of each failed topic wait. */
export function learn<R extends Addressed>(
  destinations: Destinations,
  { rows, trial }: Lot<R>,
  outcomes: readonly SendOutcome[],
): ReadonlyMap<string, number> {
  const answered = new Set<string>();
  const failures = new Map<string, Extract<SendOutcome, { kind: "unreachable" | "unknown" }>>();
  for (const [i, { topic }] of rows.entries()) {
    const outcome = outcomes[i];
    if (outcome === undefined || outcome.kind === "skipped") continue;
    if (outcome.kind !== "unreachable" && outcome.kind !== "unknown") answered.add(topic);
    else if (!failures.has(topic)) failures.set(topic, outcome);
  }
  for (const topic of answered) destinations.answered(topic);
  const waits = new Map<string, number>();
  for (const [topic, { kind, error }] of failures) {
    const failure = { reason: kind, error: failureText(error) };
    waits.set(topic, destinations.failed(topic, failure, topic === trial));
  }
  if (trial !== undefined && !answered.has(trial) && !failures.has(trial)) destinations.undecided(trial);
  return waits;
}
