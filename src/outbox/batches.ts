import type { Destinations } from "./destinations.ts";
import { printableErrorText } from "./failures.ts";
import type { SendOutcome } from "./publish-batch.ts";

/** What is sent together. A topic on trial travels by itself, so that nobody else waits for its broker. */
export interface SendBatch<R> {
  readonly rows: readonly R[];
  /** The topic this lot finds out about. */
  readonly trial?: string;
  /** It holds messages that failed before: it goes in its turn. */
  readonly doubted?: true;
  /** Others in doubt were on their way at the same time: its failure may be theirs. */
  readonly accompanied?: boolean;
}

interface AddressedRow {
  readonly topic: string;
  readonly messageId: string;
  readonly stream: string | null;
}

/**
 * Sorts what was fetched: into one lot for all that flows, one for each topic on trial, and what has to wait. Messages
 * that failed before travel apart from the others, in ever smaller lots: so the one that makes a lot fail is soon alone.
 */
export function planBatches<R extends AddressedRow>(
  rows: readonly R[],
  destinations: Destinations,
): { readonly lots: readonly SendBatch<R>[]; readonly waiting: readonly R[] } {
  const flowing: R[] = [];
  const apart: SendBatch<R>[] = [];
  const waiting: R[] = [];
  for (const [topic, own] of groupBy(rows, (row) => row.topic)) {
    const given = destinations.admit(topic);
    if (given === "none") {
      waiting.push(...own);
      continue;
    }
    const { fresh, parts } = splitSuspects(own, destinations);
    if (given === "all") {
      flowing.push(...fresh);
      apart.push(...parts.map((part) => ({ rows: part, doubted: true as const })));
      continue;
    }
    const first = fresh.length > 0 ? fresh : (parts[0] ?? []);
    const lot = given === "probe" ? first.slice(0, 1) : first;
    apart.push({ rows: lot, trial: topic, ...(fresh.length === 0 && { doubted: true }) });
    waiting.push(...exclude(own, lot));
  }
  const together = flowing.length === rows.length ? rows : keepInOrder(rows, flowing);
  return { lots: together.length === 0 ? apart : [{ rows: together }, ...apart], waiting };
}

/** What has not failed yet, and the rest in parts, those that failed least first. No key is in two of them. */
function splitSuspects<R extends AddressedRow>(
  own: readonly R[],
  { doubts }: Destinations,
): { readonly fresh: readonly R[]; readonly parts: readonly (readonly R[])[] } {
  if (doubts.isEmpty) return { fresh: own, parts: [] };
  const keys = [...groupBy(own, orderKey).values()];
  const byFailures = groupBy(keys, ([head]) =>
    head === undefined ? 0 : doubts.failureCount(head.messageId),
  );
  const fresh = byFailures.get(0)?.flat() ?? [];
  const parts = [...byFailures]
    .filter(([failures]) => failures > 0)
    .sort(([a], [b]) => a - b)
    .flatMap(([failures, doubted]) => split(doubted, 2 ** Math.min(failures, 20)));
  return { fresh: keepInOrder(own, fresh), parts };
}

function split<R>(keys: readonly (readonly R[])[], parts: number): R[][] {
  const size = Math.ceil(keys.length / parts);
  const lots: R[][] = [];
  for (let at = 0; at < keys.length; at += size) lots.push(keys.slice(at, at + size).flat());
  return lots;
}

/** What the broker did, as it bears on topics and on single messages. */
export interface SendVerdict {
  readonly outcomes: readonly SendOutcome[];
  /** How long a message waits that failed and was not charged. */
  readonly waitMs: (row: { readonly topic: string }) => number;
}

type UnansweredOutcome = Extract<SendOutcome, { kind: "unreachable" | "unknown" }>;

/**
 * Tells the destinations what their broker did. A message that fails by itself, although its broker has answered others
 * since it failed last, and no other in doubt was on its way, is not the broker's fault: it is charged. From then on its failures say nothing about its topic,
 * which flows on; where nobody else was answered in between they are not charged either.
 */
export function recordOutcomes<R extends AddressedRow>(
  destinations: Destinations,
  { rows, trial, accompanied = false }: SendBatch<R>,
  outcomes: readonly SendOutcome[],
): SendVerdict {
  const answered = new Set<string>();
  const failed: { readonly row: R; readonly outcome: UnansweredOutcome }[] = [];
  let i = 0;
  for (const row of rows) {
    const outcome = outcomes[i++];
    if (outcome === undefined || outcome.kind === "skipped") continue;
    if (outcome.kind === "unreachable" || outcome.kind === "unknown") failed.push({ row, outcome });
    else {
      answered.add(row.topic);
      if (!destinations.doubts.isEmpty) destinations.doubts.clear(row.messageId);
    }
  }
  const [first] = failed;
  const suspect = first !== undefined && isOneKey(rows) ? first.row : undefined;
  const isGuilty = suspect !== undefined && !accompanied && destinations.hasAnsweredOthers(suspect);
  const isAside = suspect !== undefined && (isGuilty || destinations.doubts.isConfirmed(suspect.messageId));
  for (const topic of answered) destinations.recordAnswer(topic);
  // Only now: an answer from the same call says nothing about what failed behind it.
  if (suspect !== undefined) destinations.markSuspect(suspect.messageId, isGuilty || undefined);
  else for (const { row } of failed) destinations.markSuspect(row.messageId);
  const waits = isAside ? new Map<string, number>() : recordFailures(destinations, failed, trial);
  if (trial !== undefined && !answered.has(trial) && !waits.has(trial)) destinations.cancelTrial(trial);
  const asideMs = isAside ? destinations.suspectDelayMs(suspect.messageId) : 0;
  return {
    outcomes: isGuilty ? rejectFirstFailure(outcomes) : outcomes,
    waitMs: ({ topic }) => waits.get(topic) ?? asideMs,
  };
}

function recordFailures(
  destinations: Destinations,
  failed: readonly { readonly row: AddressedRow; readonly outcome: UnansweredOutcome }[],
  trial: string | undefined,
): Map<string, number> {
  const waits = new Map<string, number>();
  for (const { row, outcome } of failed) {
    const { topic } = row;
    if (waits.has(topic)) continue;
    const failure = { reason: outcome.kind, error: printableErrorText(outcome.error) };
    waits.set(topic, destinations.recordFailure(topic, failure, topic === trial));
  }
  return waits;
}

// Its successors on the key were not tried, whatever became of them behind it.
function rejectFirstFailure(outcomes: readonly SendOutcome[]): SendOutcome[] {
  let isFirst = true;
  return outcomes.map((outcome) => {
    if (outcome.kind !== "unreachable" && outcome.kind !== "unknown") return outcome;
    if (!isFirst) return { kind: "skipped" };
    isFirst = false;
    return { kind: "rejected", error: outcome.error };
  });
}

function orderKey({ stream, messageId }: AddressedRow): string {
  return stream ?? messageId;
}

function isOneKey(rows: readonly AddressedRow[]): boolean {
  const [first] = rows;
  return first !== undefined && rows.every((row) => orderKey(row) === orderKey(first));
}

function exclude<R>(all: readonly R[], some: readonly R[]): readonly R[] {
  const gone = new Set(some);
  return all.filter((row) => !gone.has(row));
}

function keepInOrder<R>(all: readonly R[], some: readonly R[]): readonly R[] {
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
