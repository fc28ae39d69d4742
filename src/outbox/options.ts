import {
  environmentVariables,
  milliseconds,
  option,
  readOptions,
  wholeNumber,
  type OptionsFrom,
  type SettingsFrom,
} from "../options/index.ts";
import { outboxRetryPolicy, retryPolicy, type RetryOptions, type RetryPolicy } from "../retry/index.ts";
import type { BreakerSettings } from "./destinations.ts";

export type OverflowPolicy = "refuse" | "wait" | "drop";

export const overflowOptions = {
  /** Maximum number of waiting messages per topic. The count is an estimate, refreshed every second. */
  maxPending: option.number({ required: true, min: 1, max: 10_000_000 }),
  /**
   * What happens above the limit: "refuse" throws, "wait" waits before BEGIN (bus.transaction, bus.admit),
   * "drop" discards the message silently. Default "refuse".
   */
  policy: option.choice(["refuse", "wait", "drop"], { default: "refuse" }),
  /** How long "wait" waits before it throws. Default "30s". */
  timeout: option.duration({ default: "30s", min: 1 }),
};

export interface OverflowOptions extends OptionsFrom<typeof overflowOptions> {}

export const breakerOptions = {
  /**
   * Number of failed batches in a row after which sending to a topic stops until its broker answers a probe.
   * Default 3.
   */
  failures: option.number({ default: 3, min: 1, max: 1_000 }),
  /** Length of the first pause; it doubles with each failed probe. Default "1s". */
  cooldown: option.duration({ default: "1s", min: 10, max: 3_600_000 }),
  /** Longest pause; at least `cooldown`. Default "30s", or `cooldown` if that is longer. */
  maxCooldown: option.duration({ max: 3_600_000 }),
};

export interface BreakerOptions extends OptionsFrom<typeof breakerOptions> {}

export const brokerDepthOptions = {
  /** A topic is paused when this many messages wait at the broker for its slowest group. */
  limit: option.number({ required: true, min: 1 }),
  /** The topic is resumed when no more than this many messages wait; below `limit`. Default: four fifths of the limit. */
  resumeAt: option.number({}),
  /** How often the depth is read from the broker. Default "2s". */
  every: option.duration({ default: "2s", min: 10, max: 300_000 }),
};

export interface BrokerDepthOptions extends OptionsFrom<typeof brokerDepthOptions> {}

const DAY_MS = 86_400_000;

export const outboxOptions = {
  /** Maximum number of messages in a batch. Default 500. */
  batchSize: environmentVariables.batchSize.option,
  /** How often an idle relay reads all of its lanes. Default "1s". */
  pollInterval: environmentVariables.pollInterval.option,
  /** How long a publish to the transport may take before its outcome counts as unknown. Default "30s". */
  publishTimeout: option.duration({ default: "30s", min: 10 }),
  /**
   * Retry policy for messages that the broker rejects. Default: 10 attempts, 2 s × 2 up to 1 h, full jitter.
   */
  retry: option.value<RetryOptions, RetryPolicy>({
    accepts: "RetryOptions",
    check: (name, value) => retryPolicy(name, value as RetryOptions, outboxRetryPolicy),
  }),
  /** Whether the process that wrote a message sends it right after the commit. Default true. */
  optimistic: environmentVariables.optimistic.option,
  /** How long that send may take before the relay takes over. Default "2s". */
  optimisticTimeout: option.duration({ default: "2s", min: 10, max: 60_000 }),
  /** A low priority rises by one each time the message has waited this long. Default "10s". */
  ageing: option.duration({ default: "10s", min: 100 }),
  /** How long sent messages are kept. Default "30d". */
  retention: option.duration({ default: "30d", min: DAY_MS, max: 3_650 * DAY_MS }),
  /** Limits the number of waiting messages per topic. Default: no limit. */
  overflow: option.value<OverflowOptions, SettingsFrom<typeof overflowOptions>>({
    accepts: "OverflowOptions",
    check: (name, value) => readOptions(name, overflowOptions, value as OverflowOptions),
  }),
  /**
   * When sending to a topic pauses because its broker does not answer. Its messages use up no attempts
   * meanwhile.
   */
  breaker: option.value<BreakerOptions, BreakerSettings>({
    accepts: "BreakerOptions",
    default: {},
    check: (name, value) => readBreakerSettings(name, value as BreakerOptions),
  }),
  /**
   * Pauses a topic whose queue at the broker is full, if the transport reports depths. Default: no limit; the
   * metric `transport_depth` exists in any case.
   */
  brokerDepth: option.value<BrokerDepthOptions, BrokerDepthSettings>({
    accepts: "BrokerDepthOptions",
    check: (name, value) => readBrokerDepthSettings(name, value as BrokerDepthOptions),
  }),
};

export interface OutboxOptions extends OptionsFrom<typeof outboxOptions> {}

interface BrokerDepthSettings extends SettingsFrom<typeof brokerDepthOptions> {
  readonly resumeAt: number;
}

export interface OutboxSettings extends Omit<
  SettingsFrom<typeof outboxOptions>,
  "retry" | "overflow" | "brokerDepth"
> {
  readonly retry: RetryPolicy;
  readonly overflow: SettingsFrom<typeof overflowOptions> | null;
  readonly brokerDepth: BrokerDepthSettings | null;
}

export function outboxSettings(options: OutboxOptions = {}): OutboxSettings {
  const {
    retry = outboxRetryPolicy,
    overflow = null,
    brokerDepth = null,
    ...others
  } = readOptions("outbox", outboxOptions, options);
  return Object.freeze({ ...others, retry, overflow, brokerDepth });
}

function readBreakerSettings(name: string, options: BreakerOptions): BreakerSettings {
  const { failures, cooldownMs, maxCooldownMs } = readOptions(name, breakerOptions, options);
  return Object.freeze({
    failures,
    cooldownMs,
    maxCooldownMs: milliseconds(`${name}.maxCooldown`, maxCooldownMs ?? Math.max(cooldownMs, 30_000), {
      min: cooldownMs,
      max: 3_600_000,
    }),
  });
}

function readBrokerDepthSettings(name: string, options: BrokerDepthOptions): BrokerDepthSettings {
  const settings = readOptions(name, brokerDepthOptions, options);
  const { limit } = settings;
  const resumeAt = settings.resumeAt ?? Math.floor(limit * 0.8);
  return Object.freeze({
    ...settings,
    resumeAt: wholeNumber(`${name}.resumeAt`, resumeAt, { max: limit - 1 }),
  });
}
