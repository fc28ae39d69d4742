import { toError } from "../errors/index.ts";
import type { LaneRow } from "../lanes/index.ts";
import type { Message } from "../message/index.ts";
import { systemClock, withDeadline } from "../runtime/index.ts";
import { endSend, type Spans } from "../telemetry/index.ts";
import type { PublishOutcome, Transport } from "../transport/index.ts";
import type { Destinations } from "./destinations.ts";
import { printableErrorText } from "./settler.ts";

/**
 * Rows that are sent together. A topic on trial is sent separately, so that other topics do not wait for its
 * broker.
 */
export interface SendBatch<R> {
  readonly rows: readonly R[];
  /** The topic whose broker this batch tests. */
  readonly trial?: string;
  /** The batch contains messages that failed before. Such batches are sent one at a time. */
  readonly suspect?: true;
  /** Another suspect batch was in flight at the same time, so a failure may have been caused by that one. */
  readonly sharedTurn?: boolean;
}

interface AddressedRow {
  readonly topic: string;
  readonly messageId: string;
  readonly stream: string | null;
}

/**
 * Splits rows into one batch for all healthy topics, one for each topic on trial, and rows that have to wait.
 * Messages that failed before are sent apart from the others in ever smaller batches, until the message that
 * makes a batch fail is alone.
 */
export function planBatches<R extends AddressedRow>(
  rows: readonly R[],
  destinations: Destinations,
): { readonly batches: readonly SendBatch<R>[]; readonly waiting: readonly R[] } {
  const flowing: R[] = [];
  const apart: SendBatch<R>[] = [];
  const waiting: R[] = [];
  for (const [topic, own] of groupBy(rows, (row) => row.topic)) {
    const admittance = destinations.admit(topic);
    if (admittance === "none") {
      waiting.push(...own);
      continue;
    }
    const { fresh, parts } = splitSuspects(own, destinations);
    if (admittance === "all") {
      flowing.push(...fresh);
      apart.push(...parts.map((part) => ({ rows: part, suspect: true as const })));
      continue;
    }
    const first = fresh.length > 0 ? fresh : (parts[0] ?? []);
    const batch = admittance === "probe" ? first.slice(0, 1) : first;
    apart.push({ rows: batch, trial: topic, ...(fresh.length === 0 && { suspect: true }) });
    waiting.push(...exclude(own, batch));
  }
  const together = flowing.length === rows.length ? rows : keepInOrder(rows, flowing);
  return { batches: together.length === 0 ? apart : [{ rows: together }, ...apart], waiting };
}

/**
 * Separates rows without failures from suspect ones. Suspect rows come in parts, fewest failures first. A key
 * is never split.
 */
function splitSuspects<R extends AddressedRow>(
  own: readonly R[],
  { suspects }: Destinations,
): { readonly fresh: readonly R[]; readonly parts: readonly (readonly R[])[] } {
  if (suspects.isEmpty) return { fresh: own, parts: [] };
  const keys = [...groupBy(own, orderKey).values()];
  const byFailures = groupBy(keys, ([head]) =>
    head === undefined ? 0 : suspects.failureCount(head.messageId),
  );
  const fresh = byFailures.get(0)?.flat() ?? [];
  const parts = [...byFailures]
    .filter(([failures]) => failures > 0)
    .sort(([a], [b]) => a - b)
    .flatMap(([failures, suspect]) => split(suspect, 2 ** Math.min(failures, 20)));
  return { fresh: keepInOrder(own, fresh), parts };
}

function split<R>(keys: readonly (readonly R[])[], parts: number): R[][] {
  const size = Math.ceil(keys.length / parts);
  const batches: R[][] = [];
  for (let at = 0; at < keys.length; at += size) batches.push(keys.slice(at, at + size).flat());
  return batches;
}

/** The outcomes of a batch, judged by whether the broker or a message caused the failures. */
export interface SendVerdict {
  readonly outcomes: readonly SendOutcome[];
  /** How long a message waits after a failure that does not count as an attempt, in milliseconds. */
  readonly waitMs: (row: { readonly topic: string }) => number;
}

type UnansweredOutcome = Extract<SendOutcome, { kind: "unreachable" | "unknown" }>;

/**
 * Records the outcomes of a batch with the destinations. If a message fails alone, while its broker has
 * answered others since its last failure and no other suspect was in flight, the failure counts as its
 * attempt. Its later failures no longer affect its topic; they count as attempts only if the broker has
 * answered other messages in between.
 */
export function recordOutcomes<R extends AddressedRow>(
  destinations: Destinations,
  { rows, trial, sharedTurn = false }: SendBatch<R>,
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
      if (!destinations.suspects.isEmpty) destinations.suspects.clear(row.messageId);
    }
  }
  const [first] = failed;
  const suspect = first !== undefined && isOneKey(rows) ? first.row : undefined;
  const isOwnFailure = suspect !== undefined && !sharedTurn && destinations.hasAnsweredOthers(suspect);
  const isKnownCause =
    suspect !== undefined && (isOwnFailure || destinations.suspects.isConfirmed(suspect.messageId));
  for (const topic of answered) destinations.recordAnswer(topic);
  // After the answers above: an answer in the same call does not prove that the broker was up when this
  // message failed.
  if (suspect !== undefined) destinations.markSuspect(suspect.messageId, isOwnFailure || undefined);
  else for (const { row } of failed) destinations.markSuspect(row.messageId);
  const waits = isKnownCause ? new Map<string, number>() : recordFailures(destinations, failed, trial);
  if (trial !== undefined && !answered.has(trial) && !waits.has(trial)) destinations.cancelTrial(trial);
  const suspectMs = isKnownCause ? destinations.suspectDelayMs(suspect.messageId) : 0;
  return {
    outcomes: isOwnFailure ? rejectFirstFailure(outcomes) : outcomes,
    waitMs: ({ topic }) => waits.get(topic) ?? suspectMs,
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

// Its successors on the key were not attempted, so their outcomes become `skipped`.
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

/** `skipped`: an earlier message of the stream was not published, so this one was not attempted. */
export type SendOutcome = PublishOutcome | { readonly kind: "skipped" };

const SKIPPED: SendOutcome = Object.freeze({ kind: "skipped" });

export interface SendItem {
  readonly stream: string | null;
  readonly message: Message;
}

export interface SendOptions {
  readonly timeoutMs: number;
  /** The timeout covers the whole batch instead of each call to the transport. */
  readonly wholeBatch?: boolean;
  /** The batch contains all messages that were waiting. */
  readonly gathered?: boolean;
  /** Called before each publish. If it returns false, the rest of the batch is skipped. */
  readonly mayContinue: () => boolean;
  /** Set if tracing is on: the spans, and the name of this sender. */
  readonly traced?: { readonly spans: Spans; readonly via: "relay" | "optimistic" };
}

/**
 * Publishes a batch and returns an outcome for each message. At most one message of a stream is unconfirmed
 * at a time, unless the transport guarantees that a failure also fails all later messages of the key: then
 * the whole batch is published in one call.
 */
export async function publishBatch(
  transport: Transport,
  items: readonly SendItem[],
  options: SendOptions,
): Promise<SendOutcome[]> {
  const began = systemClock.monotonicMs();
  const outcomes: SendOutcome[] = items.map(() => SKIPPED);
  const stopped = new Set<string>();
  for (const part of splitIntoBatches(items, transport.capabilities.failsLaterOfKey)) {
    const usedMs = options.wholeBatch === true ? systemClock.monotonicMs() - began : 0;
    if (!options.mayContinue() || usedMs >= options.timeoutMs) break;
    const going = stopped.size === 0 ? part : part.filter((i) => !stopped.has(items[i]?.stream ?? ""));
    const results = await publishTraced(transport, pick(items, going), options.timeoutMs - usedMs, options);
    // Index loops here and below, because iterators allocate an array for each message.
    for (let n = 0; n < going.length; n++) {
      const i = going[n] ?? 0;
      const outcome = results[n] ?? missingOutcome();
      outcomes[i] = outcome;
      const stream = items[i]?.stream;
      if (outcome.kind !== "published" && typeof stream === "string") stopped.add(stream);
    }
  }
  return outcomes;
}

/** Splits items into parts, given as indexes, so that no part holds two messages of one stream. */
export function splitIntoBatches(
  items: readonly { readonly stream: string | null }[],
  together: boolean,
): number[][] {
  if (together) return [[...items.keys()]];
  const parts: number[][] = [];
  const seen = new Map<string, number>();
  for (const [i, { stream }] of items.entries()) {
    const turn = stream === null ? 0 : (seen.get(stream) ?? 0);
    if (stream !== null) seen.set(stream, turn + 1);
    (parts[turn] ??= []).push(i);
  }
  return parts;
}

async function publishTraced(
  transport: Transport,
  messages: readonly Message[],
  timeoutMs: number,
  { traced, gathered = false }: SendOptions,
): Promise<readonly PublishOutcome[]> {
  const publish = (): Promise<readonly PublishOutcome[]> =>
    publishOnce(transport, messages, timeoutMs, gathered);
  if (traced?.spans.enabled !== true || messages.length === 0) return publish();
  const spans = traced.spans.send(messages, traced.via);
  const outcomes = await spans.trip.run(publish);
  endSend(spans, (index) => {
    const outcome = outcomes[index] ?? missingOutcome();
    return outcome.kind === "published" ? undefined : outcome.error;
  });
  return outcomes;
}

async function publishOnce(
  transport: Transport,
  messages: readonly Message[],
  timeoutMs: number,
  gathered: boolean,
): Promise<readonly PublishOutcome[]> {
  if (messages.length === 0) return [];
  const abort = new AbortController();
  try {
    const publishing = transport.publish(messages, { signal: abort.signal, gathered });
    const answer: unknown = await withDeadline(publishing, timeoutMs, () => {
      abort.abort();
      return unknownOutcomes(messages, new Error(`no confirmation within ${timeoutMs} ms`));
    });
    if (Array.isArray(answer)) return answer.map(outcomeFrom);
    const error = new Error(`publish() of transport "${transport.name}" must return an array of outcomes`);
    return unknownOutcomes(messages, error);
  } catch (thrown) {
    return unknownOutcomes(messages, toError(thrown));
  }
}

function unknownOutcomes(messages: readonly Message[], error: Error): PublishOutcome[] {
  return messages.map(() => ({ kind: "unknown", error }));
}

const FAILURES: ReadonlySet<unknown> = new Set(["refused", "rejected", "unreachable", "unknown"]);

// Transports may be third-party code: an invalid outcome counts as unknown, and a failure always gets an
// error.
function outcomeFrom(outcome: PublishOutcome | null | undefined): PublishOutcome {
  if (outcome?.kind === "published") return outcome;
  if (outcome === null || outcome === undefined || !FAILURES.has(outcome.kind)) return missingOutcome();
  if (outcome.error instanceof Error) return outcome;
  const text = outcome.error === undefined ? outcome.kind : String(outcome.error);
  return { kind: outcome.kind, error: new Error(text) };
}

function pick(items: readonly SendItem[], indexes: readonly number[]): Message[] {
  const messages: Message[] = [];
  for (const i of indexes) {
    const item = items[i];
    if (item !== undefined) messages.push(item.message);
  }
  return messages;
}

function missingOutcome(): PublishOutcome {
  return { kind: "unknown", error: new Error("the transport gave no outcome for this message") };
}

/** The rows of a batch, sorted by how they are settled. */
export interface SortedOutcomes {
  readonly sent: LaneRow[];
  readonly rejected: { readonly row: LaneRow; readonly error: Error }[];
  readonly refused: { readonly row: LaneRow; readonly error: Error }[];
  /** The broker failed: the rows are put back without counting an attempt. */
  readonly unanswered: {
    readonly row: LaneRow;
    readonly kind: "unreachable" | "unknown";
    readonly error: Error;
  }[];
  readonly skipped: LaneRow[];
}

export function sortOutcomes(rows: readonly LaneRow[], outcomes: readonly SendOutcome[]): SortedOutcomes {
  const sorted: SortedOutcomes = { sent: [], rejected: [], refused: [], unanswered: [], skipped: [] };
  let i = 0;
  for (const row of rows) {
    const outcome = outcomes[i++] ?? missingOutcome();
    if (outcome.kind === "published") sorted.sent.push(row);
    else if (outcome.kind === "rejected") sorted.rejected.push({ row, error: outcome.error });
    else if (outcome.kind === "refused") sorted.refused.push({ row, error: outcome.error });
    else if (outcome.kind === "skipped") sorted.skipped.push(row);
    else sorted.unanswered.push({ row, kind: outcome.kind, error: outcome.error });
  }
  return sorted;
}
