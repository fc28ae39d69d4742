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

/** What holds for all handlers of a consumer. Several handlers of one consumer must not disagree. */
export interface ConsumerOptions {
  /** How many handlers or batches run at once; statements that share a transaction count as one. Default 10. */
  readonly concurrency?: number;
  /**
   * How many messages are held in memory, the running ones included. Default: twice what can run at once; four times for
   * statements.
   */
  readonly prefetch?: number;
  /**
   * What becomes of messages no handler was registered for. A topic may carry types a consumer never asked for, so
   * events and stream messages are passed over by default; a command nobody carries out goes to the dead letters.
   */
  readonly unknown?: "ignore" | "dead-letter";
  /**
   * Where a new consumer begins in a topic: with what comes "now", at the "beginning" of what is kept, or at a `time`.
   * Default "now"; the first consumer of a command gets what waited for it.
   */
  readonly from?: StartingPoint;
  /**
   * False gives up order per key: everything runs at once, and a message in retry is overtaken. Default true. It helps
   * on brokers, where retries of an ordered consumer wait in Postgres and those of an unordered one at the broker.
   */
  readonly ordered?: boolean;
  /** Keep the payload with the dedupe row. Default false. */
  readonly storePayload?: boolean;
  /** The id of a message that others published without one; undefined sends it to the dead letters. */
  readonly idOf?: (message: Message) => string | undefined;
  /** After this many deaths of a process that ran the message alone it goes to the dead letters. Default 3. */
  readonly maxCrashes?: number;
}

export interface HandlerOptions extends ConsumerOptions {
  /** Names the effect. Dedupe and retries hang on it: renaming it makes every message new. */
  readonly consumer: string;
  /** How long a handler, or one batch of them, may take. Default "30s". */
  readonly deadline?: Duration | number;
  readonly retry?: RetryOptions;
  /** Whether a failure is worth another try; undefined leaves it to us. */
  readonly classify?: FailureClassifier;
  /** Run up to `size` messages in one transaction; wait up to `wait` for it to fill. */
  readonly batch?: BatchOptions;
}

export interface BatchOptions {
  /** Default 50. */
  readonly size?: number;
  /** Default 0: take what is there. */
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

function isSame(a: unknown, b: unknown): boolean {
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
  // Later than now it would be a promise to leave out what comes until then, which no broker keeps.
  if (timeMs <= systemClock.wallMs()) return Object.freeze({ time: new Date(timeMs) });
  throw new SagaboxError("OPTIONS_INVALID", `${where}.time must be a Date that is not in the future.`);
}

/** What one more handler says about its consumer, on top of what the earlier ones said. */
export function mergeConsumerOptions(
  consumer: string,
  known: ConsumerOptions,
  given: ConsumerOptions,
): ConsumerOptions {
  const said = Object.fromEntries(
    consumerKeys.filter((key) => given[key] !== undefined).map((key) => [key, given[key]]),
  ) as ConsumerOptions;
  for (const key of consumerKeys) {
    if (said[key] === undefined || known[key] === undefined || isSame(said[key], known[key])) continue;
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `Two handlers of consumer "${consumer}" give different values for "${key}". Say it once, or the same twice.`,
    );
  }
  return { ...known, ...said };
}
