import { SagaboxError } from "../errors/index.ts";
import type { Message } from "../message/index.ts";
import {
  callable,
  flag,
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
  type Duration,
} from "../options/index.ts";
import {
  consumerRetryPolicy,
  retryPolicy,
  type FailureClassifier,
  type RetryOptions,
  type RetryPolicy,
} from "../retry/index.ts";
import { systemClock } from "../runtime/index.ts";
import type { StartingPoint } from "../transport/index.ts";

/** Options of a consumer. Handlers of one consumer must not give different values for them. */
export interface ConsumerOptions {
  /** How many handlers or batches run at once. Statements that share a transaction count as one. Default 10. */
  readonly concurrency?: number;
  /**
   * How many messages are held in memory, including running ones. Default: twice as many as can run at once, four times
   * for statements.
   */
  readonly prefetch?: number;
  /**
   * What happens to messages without a handler. Default: "ignore" for events and stream messages, because a topic may
   * carry other types; "dead-letter" for commands.
   */
  readonly unknown?: "ignore" | "dead-letter";
  /**
   * Where a new consumer begins in a topic: "now", at the "beginning" of the stored messages, or at a `time`. Default
   * "now". The first consumer of a command always gets the commands that are waiting.
   */
  readonly from?: StartingPoint;
  /**
   * Whether messages of one key are handled in order. If false, later messages overtake one that is retried, and retries
   * on a broker wait at the broker instead of in PostgreSQL. Default true.
   */
  readonly ordered?: boolean;
  /** Whether the payload is stored with the dedupe row. Default false. */
  readonly storePayload?: boolean;
  /** Derives the id of a message that was published without one. If it returns undefined, the message is dead-lettered. */
  readonly idOf?: (message: Message) => string | undefined;
  /** A message is dead-lettered after this many processes died while they ran only that message. Default 3. */
  readonly maxCrashes?: number;
}

export interface HandlerOptions extends ConsumerOptions {
  /** The name of the consumer. Duplicates are found by it: after a rename, all messages count as new. */
  readonly consumer: string;
  /** How long a handler, or one batch, may take. Default "30s". */
  readonly deadline?: Duration | number;
  readonly retry?: RetryOptions;
  /** Decides whether a failure is retried. If it returns undefined, the built-in classification applies. */
  readonly classify?: FailureClassifier;
  /** Handles up to `size` messages in one transaction. A batch waits up to `wait` to fill up. */
  readonly batch?: BatchOptions;
}

export interface BatchOptions {
  /** The most messages of a batch. Default 50. */
  readonly size?: number;
  /** How long a batch waits to fill up. Default 0: it takes the messages that are ready. */
  readonly wait?: Duration | number;
}

export interface BatchSettings {
  readonly size: number;
  readonly waitMs: number;
}

export interface HandlerSettings {
  readonly deadlineMs: number;
  readonly retry: RetryPolicy;
  readonly classify: FailureClassifier | undefined;
  readonly batch: BatchSettings | null;
}

export interface ConsumerSettings {
  readonly concurrency: number;
  readonly prefetch: number | null;
  readonly unknown: "ignore" | "dead-letter" | null;
  readonly from: StartingPoint | null;
  readonly ordered: boolean;
  readonly storePayload: boolean;
  readonly idOf: ((message: Message) => string | undefined) | null;
  readonly maxCrashes: number;
}

const consumerKeys = [
  "concurrency",
  "prefetch",
  "unknown",
  "from",
  "ordered",
  "storePayload",
  "idOf",
  "maxCrashes",
] as const;
const handlerKeys = ["consumer", "deadline", "retry", "classify", "batch", "statement"];

export function handlerSettings(options: HandlerOptions): HandlerSettings {
  rejectUnknownKeys("on()", options, [...handlerKeys, ...consumerKeys]);
  const where = `consumer "${text("on().consumer", options.consumer)}"`;
  const deadline = milliseconds(`${where}.deadline`, options.deadline ?? "30s", { min: 10, max: 3_600_000 });
  return Object.freeze({
    deadlineMs: deadline,
    retry: retryPolicy(
      `${where}.retry`,
      options.retry === undefined ? {} : options.retry,
      consumerRetryPolicy,
    ),
    classify: options.classify === undefined ? undefined : callable(`${where}.classify`, options.classify),
    batch: options.batch === undefined ? null : batchSettings(where, options.batch),
  });
}

function batchSettings(where: string, options: BatchOptions): BatchSettings {
  rejectUnknownKeys(`${where}.batch`, options, ["size", "wait"]);
  return Object.freeze({
    size: wholeNumber(`${where}.batch.size`, options.size ?? 50, { min: 1, max: 1_000 }),
    waitMs: milliseconds(`${where}.batch.wait`, options.wait ?? 0, { max: 60_000 }),
  });
}

function isEqual(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));
}

export function consumerSettings(consumer: string, options: ConsumerOptions): ConsumerSettings {
  const where = `consumer "${consumer}"`;
  const { prefetch, unknown } = options;
  return Object.freeze({
    concurrency: wholeNumber(`${where}.concurrency`, options.concurrency ?? 10, { min: 1, max: 1_000 }),
    prefetch:
      prefetch === undefined ? null : wholeNumber(`${where}.prefetch`, prefetch, { min: 1, max: 100_000 }),
    unknown: unknown === undefined ? null : oneOf(`${where}.unknown`, unknown, ["ignore", "dead-letter"]),
    from: options.from === undefined ? null : startingPoint(`${where}.from`, options.from),
    ordered: flag(`${where}.ordered`, options.ordered ?? true),
    storePayload: flag(`${where}.storePayload`, options.storePayload ?? false),
    idOf: options.idOf === undefined ? null : callable(`${where}.idOf`, options.idOf),
    maxCrashes: wholeNumber(`${where}.maxCrashes`, options.maxCrashes ?? 3, { min: 1, max: 100 }),
  });
}

function startingPoint(where: string, from: StartingPoint): StartingPoint {
  if (typeof from !== "object" || from === null) return oneOf(where, from, ["now", "beginning"]);
  rejectUnknownKeys(where, from, ["time"]);
  const timeMs = from.time instanceof Date ? from.time.getTime() : Number.NaN;
  // No broker can skip the messages until a time in the future.
  if (timeMs <= systemClock.wallMs()) return Object.freeze({ time: new Date(timeMs) });
  throw new SagaboxError("OPTIONS_INVALID", `${where}.time must be a Date that is not in the future.`);
}

/** Merges the consumer options of another handler. Throws OPTIONS_INVALID if it contradicts an earlier one. */
export function mergeConsumerOptions(
  consumer: string,
  known: ConsumerOptions,
  given: ConsumerOptions,
): ConsumerOptions {
  const added = Object.fromEntries(
    consumerKeys.filter((key) => given[key] !== undefined).map((key) => [key, given[key]]),
  ) as ConsumerOptions;
  for (const key of consumerKeys) {
    if (added[key] === undefined || known[key] === undefined || isEqual(added[key], known[key])) continue;
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `Two handlers of consumer "${consumer}" give different values for "${key}". Give it once, or the same value twice.`,
    );
  }
  return { ...known, ...added };
}
