import { toError } from "../errors/index.ts";
import type { LaneRow } from "../lanes/index.ts";
import type { Message } from "../message/index.ts";
import { systemClock, withDeadline } from "../runtime/index.ts";
import { endSend, type Spans } from "../telemetry/index.ts";
import type { PublishOutcome, Transport } from "../transport/index.ts";

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
