import { SagaboxError } from "../errors/index.ts";
import type { Message } from "../message/index.ts";
import {
  environmentVariables,
  oneOf,
  option,
  readOptions,
  readValues,
  rejectUnknownKeys,
  text,
  type OptionsFrom,
  type SettingsFrom,
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

export const consumerOptions = {
  /** How many handlers or batches run at once; statements that share a transaction count as one. Default 10. */
  concurrency: environmentVariables.concurrency.option,
  /**
   * How many messages are held in memory, the running ones included. Default: twice what can run at once; four times for
   * statements.
   */
  prefetch: option.number({ min: 1, max: 100_000 }),
  /**
   * What happens to messages without a handler. A topic may carry types that a consumer did not ask for. Default:
   * "ignore" for events and stream messages, "dead-letter" for commands.
   */
  unknown: option.choice(["ignore", "dead-letter"], {}),
  /**
   * Where a new consumer begins in a topic: at new messages ("now"), at the oldest kept message ("beginning"), or at a
   * `time`. Default "now"; the first consumer of a command gets the commands that waited for it.
   */
  from: option.value<StartingPoint>({
    accepts: "StartingPoint",
    check: (name, value) => checkStartingPoint(name, value as StartingPoint),
  }),
  /**
   * False handles the messages of one key in any order and concurrently, and a message in retry is overtaken. It helps
   * on brokers, where retries of an ordered consumer wait in PostgreSQL and those of an unordered one at the broker.
   * Default true.
   */
  ordered: option.boolean({ default: true }),
  /** Stores the payload with the dedupe row. Default false. */
  storePayload: option.boolean({ default: false }),
  /** Returns the id of a message that was published without one; undefined dead-letters the message. */
  idOf: option.callback<(message: Message) => string | undefined>(),
  /** A message is dead-lettered after this many deaths of a process that ran it alone. Default 3. */
  maxCrashes: option.number({ default: 3, min: 1, max: 100 }),
};

/** Options of a consumer. All handlers of one consumer must agree on them. */
export interface ConsumerOptions extends OptionsFrom<typeof consumerOptions> {}

export const batchOptions = {
  /** Maximum number of messages in one transaction. Default 50. */
  size: option.number({ default: 50, min: 1, max: 1_000 }),
  /** How long a batch waits to fill. Default 0: it takes what is there. */
  wait: option.duration({ default: 0, max: 60_000 }),
};

export interface BatchOptions extends OptionsFrom<typeof batchOptions> {}
export type BatchSettings = SettingsFrom<typeof batchOptions>;

export const handlerOptions = {
  /** Names the effect. Deduplication and retries depend on it: after a rename, every message is new. */
  consumer: option.string({ required: true }),
  /** How long a handler, or one batch, may take. Default "30s". */
  deadline: option.duration({ default: "30s", min: 10, max: 3_600_000 }),
  /** Retries after a failed attempt. Default: 6 attempts, 1 s × 2 up to 60 s, full jitter. */
  retry: option.value<RetryOptions, RetryPolicy>({
    accepts: "RetryOptions",
    default: {},
    check: (name, value) => retryPolicy(name, value as RetryOptions, consumerRetryPolicy),
  }),
  /** Decides whether a failure is retried; undefined leaves the decision to sagabox. */
  classify: option.callback<FailureClassifier>(),
  /** Handles up to `size` messages in one transaction, and waits up to `wait` for them. */
  batch: option.value<BatchOptions, BatchSettings>({
    accepts: "BatchOptions",
    check: (name, value) => readOptions(name, batchOptions, value as BatchOptions),
  }),
};

export interface HandlerOptions extends OptionsFrom<typeof handlerOptions>, ConsumerOptions {}

export interface HandlerSettings extends Omit<SettingsFrom<typeof handlerOptions>, "consumer" | "batch"> {
  readonly batch: BatchSettings | null;
}

export interface ConsumerSettings extends Omit<
  SettingsFrom<typeof consumerOptions>,
  "prefetch" | "unknown" | "from" | "idOf"
> {
  readonly prefetch: number | null;
  readonly unknown: "ignore" | "dead-letter" | null;
  readonly from: StartingPoint | null;
  readonly idOf: ((message: Message) => string | undefined) | null;
}

const consumerKeys = Object.keys(consumerOptions) as readonly (keyof ConsumerOptions)[];

export function handlerSettings(options: HandlerOptions): HandlerSettings {
  rejectUnknownKeys("on()", options, [...Object.keys(handlerOptions), "statement", ...consumerKeys]);
  const where = `consumer "${text("on().consumer", options.consumer)}"`;
  const { deadlineMs, retry, classify, batch = null } = readValues(where, handlerOptions, options);
  return Object.freeze({ deadlineMs, retry, classify, batch });
}

export function consumerSettings(consumer: string, options: ConsumerOptions): ConsumerSettings {
  const settings = readValues(`consumer "${consumer}"`, consumerOptions, options);
  const { prefetch = null, unknown = null, from = null, idOf = null, ...others } = settings;
  return Object.freeze({ ...others, prefetch, unknown, from, idOf });
}

function checkStartingPoint(where: string, from: StartingPoint): StartingPoint {
  if (typeof from !== "object" || from === null) return oneOf(where, from, ["now", "beginning"]);
  rejectUnknownKeys(where, from, ["time"]);
  const timeMs = from.time instanceof Date ? from.time.getTime() : Number.NaN;
  // A later time would skip the messages published until then, which no broker can do.
  if (timeMs <= systemClock.wallMs()) return Object.freeze({ time: new Date(timeMs) });
  throw new SagaboxError("OPTIONS_INVALID", `${where}.time must be a Date that is not in the future.`);
}

function isSame(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));
}

/** Merges the consumer options of one more handler. Throws OPTIONS_INVALID if two handlers disagree. */
export function mergeConsumerOptions(
  consumer: string,
  known: ConsumerOptions,
  given: ConsumerOptions,
): ConsumerOptions {
  const stated = Object.fromEntries(
    consumerKeys.filter((key) => given[key] !== undefined).map((key) => [key, given[key]]),
  ) as ConsumerOptions;
  for (const key of consumerKeys) {
    if (stated[key] === undefined || known[key] === undefined || isSame(stated[key], known[key])) continue;
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `Two handlers of consumer "${consumer}" set different values for "${key}". Set it once, or to one value.`,
    );
  }
  return { ...known, ...stated };
}
