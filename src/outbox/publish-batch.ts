import { toError } from "../errors/index.ts";
import type { LaneRow } from "../lanes/index.ts";
import type { Message } from "../message/index.ts";
import { systemClock, withDeadline } from "../runtime/index.ts";
import { endSend, type Spans } from "../telemetry/index.ts";
import type { PublishOutcome, Transport } from "../transport/index.ts";

/** `skipped`: an earlier message of its stream did not get through, so this one was not tried. */
export type SendOutcome = PublishOutcome | { readonly kind: "skipped" };

const SKIPPED: SendOutcome = Object.freeze({ kind: "skipped" });

export interface SendItem {
  readonly stream: string | null;
  readonly message: Message;
}

export interface SendOptions {
  readonly timeoutMs: number;
  /** The time is for the whole batch, however many trips it takes. */
  readonly wholeBatch?: boolean;
  /** The batch is all that there was to send. */
  readonly gathered?: boolean;
  /** Asked before each trip; what has not gone out by then is skipped. */
  readonly mayGoOn: () => boolean;
  /** Where somebody traces: under which name this sender is known. */
  readonly traced?: { readonly spans: Spans; readonly via: "relay" | "optimistic" };
}

/**
 * A batch through the transport, with an outcome for each. At most one message of a stream is unconfirmed at a time,
 * unless the transport promises that a failure fails all later ones of that key: then the whole batch goes at once.
 */
export async function publishBatch(
  transport: Transport,
  items: readonly SendItem[],
  options: SendOptions,
): Promise<SendOutcome[]> {
  const began = systemClock.monotonicMs();
  const outcomes: SendOutcome[] = items.map(() => SKIPPED);
  const stopped = new Set<string>();
  for (const wave of splitIntoBatches(items, transport.capabilities.failsLaterOfKey)) {
    const usedMs = options.wholeBatch === true ? systemClock.monotonicMs() - began : 0;
    if (!options.mayGoOn() || usedMs >= options.timeoutMs) break;
    const going = stopped.size === 0 ? wave : wave.filter((i) => !stopped.has(items[i]?.stream ?? ""));
    const results = await publishTraced(transport, pick(items, going), options.timeoutMs - usedMs, options);
    // Counted by hand, here and below: an iterator makes a list for each message, which somebody has to clear away.
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

/** Indexes of the items, so that no wave holds two of one stream. */
export function splitIntoBatches(
  items: readonly { readonly stream: string | null }[],
  together: boolean,
): number[][] {
  if (together) return [[...items.keys()]];
  const waves: number[][] = [];
  const seen = new Map<string, number>();
  for (const [i, { stream }] of items.entries()) {
    const turn = stream === null ? 0 : (seen.get(stream) ?? 0);
    if (stream !== null) seen.set(stream, turn + 1);
    (waves[turn] ??= []).push(i);
  }
  return waves;
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
    const error = new Error(`publish() of transport "${transport.name}" must answer with a list of outcomes`);
    return unknownOutcomes(messages, error);
  } catch (thrown) {
    return unknownOutcomes(messages, toError(thrown));
  }
}

function unknownOutcomes(messages: readonly Message[], error: Error): PublishOutcome[] {
  return messages.map(() => ({ kind: "unknown", error }));
}

const FAILURES: ReadonlySet<unknown> = new Set(["refused", "rejected", "unreachable", "unknown"]);

// Transports are written by others too: an outcome that is none says nothing, and a failure always has its error.
function outcomeFrom(given: PublishOutcome | null | undefined): PublishOutcome {
  if (given?.kind === "published") return given;
  if (given === null || given === undefined || !FAILURES.has(given.kind)) return missingOutcome();
  if (given.error instanceof Error) return given;
  return { kind: given.kind, error: new Error(given.error === undefined ? given.kind : String(given.error)) };
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

/** What becomes of each row of a batch. */
export interface SortedOutcomes {
  readonly sent: LaneRow[];
  readonly charged: { readonly row: LaneRow; readonly error: Error }[];
  readonly refused: { readonly row: LaneRow; readonly error: Error }[];
  /** The broker's failure: back as they were. */
  readonly uncharged: {
    readonly row: LaneRow;
    readonly kind: "unreachable" | "unknown";
    readonly error: Error;
  }[];
  readonly skipped: LaneRow[];
}

export function sortOutcomes(rows: readonly LaneRow[], outcomes: readonly SendOutcome[]): SortedOutcomes {
  const sorted: SortedOutcomes = { sent: [], charged: [], refused: [], uncharged: [], skipped: [] };
  let i = 0;
  for (const row of rows) {
    const outcome = outcomes[i++] ?? missingOutcome();
    if (outcome.kind === "published") sorted.sent.push(row);
    else if (outcome.kind === "rejected") sorted.charged.push({ row, error: outcome.error });
    else if (outcome.kind === "refused") sorted.refused.push({ row, error: outcome.error });
    else if (outcome.kind === "skipped") sorted.skipped.push(row);
    else sorted.uncharged.push({ row, kind: outcome.kind, error: outcome.error });
  }
  return sorted;
}
