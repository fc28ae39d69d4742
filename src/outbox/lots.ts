import type { Destinations } from "./destinations.ts";
import { failureText } from "./failures.ts";
import type { SendOutcome } from "./publish-batch.ts";

/** What is sent together. A topic on trial travels by itself, so that nobody else waits for its broker. */
export interface Lot<R> {
  readonly rows: readonly R[];
  /** The topic this lot finds out about. */
  readonly trial?: string;
  /** It holds messages that failed before: it goes in its turn. */
  readonly doubted?: true;
  /** Others in doubt were on their way at the same time: its failure may be theirs. */
  readonly accompanied?: boolean;
}

interface Addressed {
  readonly topic: string;
  readonly messageId: string;
  readonly stream: string | null;
}

/**
 * Sorts what was fetched: into one lot for all that flows, one for each topic on trial, and what has to wait. Messages
 * that failed before travel apart from the others, in ever smaller lots: so the one that makes a lot fail is soon alone.
 */
export function lotsOf<R extends Addressed>(
  rows: readonly R[],
  destinations: Destinations,
): { readonly lots: readonly Lot<R>[]; readonly waiting: readonly R[] } {
  const flowing: R[] = [];
  const apart: Lot<R>[] = [];
  const waiting: R[] = [];
  for (const [topic, own] of groupBy(rows, (row) => row.topic)) {
    const given = destinations.admit(topic);
    if (given === "none") {
      waiting.push(...own);
      continue;
    }
    const { fresh, parts } = partsOf(own, destinations);
    if (given === "all") {
      flowing.push(...fresh);
      apart.push(...parts.map((part) => ({ rows: part, doubted: true as const })));
      continue;
    }
    const first = fresh.length > 0 ? fresh : (parts[0] ?? []);
    const lot = given === "probe" ? first.slice(0, 1) : first;
    apart.push({ rows: lot, trial: topic, ...(fresh.length === 0 && { doubted: true }) });
    waiting.push(...without(own, lot));
  }
  const together = flowing.length === rows.length ? rows : inOrderOf(rows, flowing);
  return { lots: together.length === 0 ? apart : [{ rows: together }, ...apart], waiting };
}

/** What has not failed yet, and the rest in parts, those that failed least first. No key is in two of them. */
function partsOf<R extends Addressed>(
  own: readonly R[],
  { doubts }: Destinations,
): { readonly fresh: readonly R[]; readonly parts: readonly (readonly R[])[] } {
  if (doubts.isEmpty) return { fresh: own, parts: [] };
  const keys = [...groupBy(own, keyOf).values()];
  const byFailures = groupBy(keys, ([head]) => (head === undefined ? 0 : doubts.failures(head.messageId)));
  const fresh = byFailures.get(0)?.flat() ?? [];
  const parts = [...byFailures]
    .filter(([failures]) => failures > 0)
    .sort(([a], [b]) => a - b)
    .flatMap(([failures, doubted]) => split(doubted, 2 ** Math.min(failures, 20)));
  return { fresh: inOrderOf(own, fresh), parts };
}

function split<R>(keys: readonly (readonly R[])[], parts: number): R[][] {
  const size = Math.ceil(keys.length / parts);
  const lots: R[][] = [];
  for (let at = 0; at < keys.length; at += size) lots.push(keys.slice(at, at + size).flat());
  return lots;
}

/** What the broker did, as it bears on topics and on single messages. */
export interface Learnt {
  readonly outcomes: readonly SendOutcome[];
  /** How long a message waits that failed and was not charged. */
  readonly waitMs: (row: { readonly topic: string }) => number;
}

type Unanswered = Extract<SendOutcome, { kind: "unreachable" | "unknown" }>;

/**
 * Tells the destinations what their broker did. A message that fails by itself, although its broker has answered others
 * since it failed last, and no other in doubt was on its way, is not the broker's fault: it is charged. From then on its failures say nothing about its topic,
 * which flows on; where nobody else was answered in between they are not charged either.
 */
export function learn<R extends Addressed>(
  destinations: Destinations,
  { rows, trial, accompanied = false }: Lot<R>,
  outcomes: readonly SendOutcome[],
): Learnt {
  const answered = new Set<string>();
  const failed: { readonly row: R; readonly outcome: Unanswered }[] = [];
  let i = 0;
  for (const row of rows) {
    const outcome = outcomes[i++];
    if (outcome === undefined || outcome.kind === "skipped") continue;
    if (outcome.kind === "unreachable" || outcome.kind === "unknown") failed.push({ row, outcome });
    else {
      answered.add(row.topic);
      if (!destinations.doubts.isEmpty) destinations.doubts.answered(row.messageId);
    }
  }
  const [first] = failed;
  const suspect = first !== undefined && isOneKey(rows) ? first.row : undefined;
  const isGuilty = suspect !== undefined && !accompanied && destinations.answersOthers(suspect);
  const isAside = suspect !== undefined && (isGuilty || destinations.doubts.isGuilty(suspect.messageId));
  for (const topic of answered) destinations.answered(topic);
  // Only now: an answer from the same call says nothing about what failed behind it.
  if (suspect !== undefined) destinations.doubt(suspect.messageId, isGuilty || undefined);
  else for (const { row } of failed) destinations.doubt(row.messageId);
  const waits = isAside ? new Map<string, number>() : tellFailed(destinations, failed, trial);
  if (trial !== undefined && !answered.has(trial) && !waits.has(trial)) destinations.undecided(trial);
  const asideMs = isAside ? destinations.asideMs(suspect.messageId) : 0;
  return {
    outcomes: isGuilty ? charged(outcomes) : outcomes,
    waitMs: ({ topic }) => waits.get(topic) ?? asideMs,
  };
}

function tellFailed(
  destinations: Destinations,
  failed: readonly { readonly row: Addressed; readonly outcome: Unanswered }[],
  trial: string | undefined,
): Map<string, number> {
  const waits = new Map<string, number>();
  for (const { row, outcome } of failed) {
    const { topic } = row;
    if (waits.has(topic)) continue;
    const failure = { reason: outcome.kind, error: failureText(outcome.error) };
    waits.set(topic, destinations.failed(topic, failure, topic === trial));
  }
  return waits;
}

// Its successors on the key were not tried, whatever became of them behind it.
function charged(outcomes: readonly SendOutcome[]): SendOutcome[] {
  let isFirst = true;
  return outcomes.map((outcome) => {
    if (outcome.kind !== "unreachable" && outcome.kind !== "unknown") return outcome;
    if (!isFirst) return { kind: "skipped" };
    isFirst = false;
    return { kind: "rejected", error: outcome.error };
  });
}

function keyOf({ stream, messageId }: Addressed): string {
  return stream ?? messageId;
}

function isOneKey(rows: readonly Addressed[]): boolean {
  const [first] = rows;
  return first !== undefined && rows.every((row) => keyOf(row) === keyOf(first));
}

function without<R>(all: readonly R[], some: readonly R[]): readonly R[] {
  const gone = new Set(some);
  return all.filter((row) => !gone.has(row));
}

function inOrderOf<R>(all: readonly R[], some: readonly R[]): readonly R[] {
  const chosen = new Set(some);
  return all.filter((row) => chosen.has(row));
}

function groupBy<T, K>(items: readonly T[], by: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const name = by(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return groups;
}
