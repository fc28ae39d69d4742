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
  /** How many handlers or batches run at once. Statements that share a transaction count as one. Default 10. */
  concurrency: environmentVariables.concurrency.option,
  /**
   * How many messages are held in memory, including running ones. Default: twice as many as can run at once, four times
   * for statements.
   */
  prefetch: option.number({ min: 1, max: 100_000 }),
  /**
   * What happens to messages without a handler. Default: "ignore" for events and stream messages, because a topic may
   * carry other types; "dead-letter" for commands.
   */
  unknown: option.choice(["ignore", "dead-letter"], {}),
  /**
   * Where a new consumer begins in a topic: "now", at the "beginning" of the stored messages, or at a `time`. Default
   * "now". The first consumer of a command always gets the commands that are waiting.
   */
  from: option.value<StartingPoint>({
    accepts: "StartingPoint",
    check: (name, value) => checkStartingPoint(name, value as StartingPoint),
  }),
  /**
   * Whether messages of one key are handled in order. If false, later messages overtake one that is retried, and retries
   * on a broker wait at the broker instead of in PostgreSQL. Default true.
   */
  ordered: option.boolean({ default: true }),
  /** Whether the payload is stored with the dedupe row. Default false. */
  storePayload: option.boolean({ default: false }),
  /** Derives the id of a message that was published without one. If it returns undefined, the message is dead-lettered. */
  idOf: option.callback<(message: Message) => string | undefined>(),
  /** A message is dead-lettered after this many processes died while they ran only that message. Default 3. */
  maxCrashes: option.number({ default: 3, min: 1, max: 100 }),
};

/** Options of a consumer. Handlers of one consumer must not give different values for them. */
export interface ConsumerOptions extends OptionsFrom<typeof consumerOptions> {}

export const batchOptions = {
  /** The most messages of a batch. Default 50. */
  size: option.number({ default: 50, min: 1, max: 1_000 }),
  /** How long a batch waits to fill up. Default 0: it takes the messages that are ready. */
  wait: option.duration({ default: 0, max: 60_000 }),
};

export interface BatchOptions extends OptionsFrom<typeof batchOptions> {}
export type BatchSettings = SettingsFrom<typeof batchOptions>;

export const handlerOptions = {
  /** The name of the consumer. Duplicates are found by it: after a rename, all messages count as new. */
  consumer: option.string({ required: true }),
  /** How long a handler, or one batch, may take. Default "30s". */
  deadline: option.duration({ default: "30s", min: 10, max: 3_600_000 }),
  /** Retries after a failed attempt. Default: 6 attempts, 1 s × 2 up to 60 s, full jitter. */
  retry: option.value<RetryOptions, RetryPolicy>({
    accepts: "RetryOptions",
    default: {},
    check: (name, value) => retryPolicy(name, value as RetryOptions, consumerRetryPolicy),
  }),
  /** Decides whether a failure is retried. If it returns undefined, the built-in classification applies. */
  classify: option.callback<FailureClassifier>(),
  /** Handles up to `size` messages in one transaction. A batch waits up to `wait` to fill up. */
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
  // No broker can skip the messages until a time in the future.
  if (timeMs <= systemClock.wallMs()) return Object.freeze({ time: new Date(timeMs) });
  throw new SagaboxError("OPTIONS_INVALID", `${where}.time must be a Date that is not in the future.`);
}

function isEqual(a: unknown, b: unknown): boolean {
  return a === b || (typeof a === "object" && JSON.stringify(a) === JSON.stringify(b));
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
