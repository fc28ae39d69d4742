import {
  flag,
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  wholeNumber,
  type Duration,
} from "../options/index.ts";
import type { BreakerSettings } from "./breaker.ts";
import { outboxRetryPolicy, retryPolicy, type RetryOptions, type RetryPolicy } from "../retry/index.ts";

export type OverflowPolicy = "refuse" | "wait" | "drop";

export interface OverflowOptions {
  /** Maximum number of waiting messages per topic. The count is an estimate, refreshed every second. */
  readonly maxPending: number;
  /**
   * What happens above the limit: "refuse" throws, "wait" waits before BEGIN (bus.transaction, bus.admit),
   * "drop" discards the message silently. Default "refuse".
   */
  readonly policy?: OverflowPolicy;
  /** How long "wait" waits before it throws. Default "30s". */
  readonly timeout?: Duration | number;
}

export interface BreakerOptions {
  /**
   * Number of failed batches in a row after which sending to a topic stops until its broker answers a probe.
   * Default 3.
   */
  readonly failures?: number;
  /** Length of the first pause; it doubles with each failed probe. Default "1s". */
  readonly cooldown?: Duration | number;
  /** Longest pause. Default "30s". */
  readonly maxCooldown?: Duration | number;
}

export interface BrokerDepthOptions {
  /** A topic is paused when this many messages wait at the broker for its slowest group. */
  readonly limit: number;
  /** The topic is resumed when no more than this many messages wait. Default: four fifths of the limit. */
  readonly resumeAt?: number;
  /** How often the depth is read from the broker. Default "2s". */
  readonly every?: Duration | number;
}

export interface OutboxOptions {
  /** Maximum number of messages in a batch. Default 500. */
  readonly batchSize?: number;
  /** How often an idle relay reads all of its lanes. Default "1s". */
  readonly pollInterval?: Duration | number;
  /** How long a publish to the transport may take before its outcome counts as unknown. Default "30s". */
  readonly publishTimeout?: Duration | number;
  /**
   * Retry policy for messages that the broker rejects. Default 10 attempts, 2 s × 2 up to 1 h, full jitter.
   */
  readonly retry?: RetryOptions;
  /** Whether the process that wrote a message sends it right after the commit. Default true. */
  readonly optimistic?: boolean;
  /** How long that send may take before the relay takes over. Default "2s". */
  readonly optimisticTimeout?: Duration | number;
  /** A low priority rises by one each time the message has waited this long. Default "10s". */
  readonly ageing?: Duration | number;
  /** How long sent messages are kept. Default "30d". */
  readonly retention?: Duration | number;
  /** Limits the number of waiting messages per topic. Default: no limit. */
  readonly overflow?: OverflowOptions;
  /**
   * When sending to a topic pauses because its broker does not answer. Its messages use up no attempts
   * meanwhile.
   */
  readonly breaker?: BreakerOptions;
  /**
   * Pauses a topic whose queue at the broker is full, if the transport reports depths. Default: no limit; the
   * metric `transport_depth` exists in any case.
   */
  readonly brokerDepth?: BrokerDepthOptions;
}

export interface OutboxSettings {
  readonly batchSize: number;
  readonly pollMs: number;
  readonly publishTimeoutMs: number;
  readonly retry: RetryPolicy;
  readonly optimistic: boolean;
  readonly optimisticTimeoutMs: number;
  readonly ageingMs: number;
  readonly retentionMs: number;
  readonly overflow: {
    readonly maxPending: number;
    readonly policy: OverflowPolicy;
    readonly timeoutMs: number;
  } | null;
  readonly breaker: BreakerSettings;
  readonly brokerDepth: {
    readonly limit: number;
    readonly resumeAt: number;
    readonly everyMs: number;
  } | null;
}

const DAY_MS = 86_400_000;

export function outboxSettings(options: OutboxOptions = {}): OutboxSettings {
  rejectUnknownKeys("outbox", options, [
    "batchSize",
    "pollInterval",
    "publishTimeout",
    "retry",
    "optimistic",
    "optimisticTimeout",
    "ageing",
    "retention",
    "overflow",
    "breaker",
    "brokerDepth",
  ]);
  return Object.freeze({
    batchSize: wholeNumber("outbox.batchSize", options.batchSize ?? 500, { min: 1, max: 5_000 }),
    pollMs: milliseconds("outbox.pollInterval", options.pollInterval ?? "1s", { min: 10, max: 60_000 }),
    publishTimeoutMs: milliseconds("outbox.publishTimeout", options.publishTimeout ?? "30s", { min: 10 }),
    retry:
      options.retry === undefined
        ? outboxRetryPolicy
        : retryPolicy("outbox.retry", options.retry, outboxRetryPolicy),
    optimistic: flag("outbox.optimistic", options.optimistic ?? true),
    optimisticTimeoutMs: milliseconds("outbox.optimisticTimeout", options.optimisticTimeout ?? "2s", {
      min: 10,
      max: 60_000,
    }),
    ageingMs: milliseconds("outbox.ageing", options.ageing ?? "10s", { min: 100 }),
    retentionMs: milliseconds("outbox.retention", options.retention ?? "30d", {
      min: DAY_MS,
      max: 3_650 * DAY_MS,
    }),
    overflow: options.overflow === undefined ? null : overflowSettings(options.overflow),
    breaker: breakerSettings(options.breaker ?? {}),
    brokerDepth: options.brokerDepth === undefined ? null : depthSettings(options.brokerDepth),
  });
}

function overflowSettings(options: OverflowOptions): NonNullable<OutboxSettings["overflow"]> {
  rejectUnknownKeys("outbox.overflow", options, ["maxPending", "policy", "timeout"]);
  return Object.freeze({
    maxPending: wholeNumber("outbox.overflow.maxPending", options.maxPending, { min: 1, max: 10_000_000 }),
    policy: oneOf("outbox.overflow.policy", options.policy ?? "refuse", ["refuse", "wait", "drop"]),
    timeoutMs: milliseconds("outbox.overflow.timeout", options.timeout ?? "30s", { min: 1 }),
  });
}

function breakerSettings(options: BreakerOptions): BreakerSettings {
  rejectUnknownKeys("outbox.breaker", options, ["failures", "cooldown", "maxCooldown"]);
  const cooldownMs = milliseconds("outbox.breaker.cooldown", options.cooldown ?? "1s", {
    min: 10,
    max: 3_600_000,
  });
  return Object.freeze({
    failures: wholeNumber("outbox.breaker.failures", options.failures ?? 3, { min: 1, max: 1_000 }),
    cooldownMs,
    maxCooldownMs: milliseconds(
      "outbox.breaker.maxCooldown",
      options.maxCooldown ?? Math.max(cooldownMs, 30_000),
      { min: cooldownMs, max: 3_600_000 },
    ),
  });
}

function depthSettings(options: BrokerDepthOptions): NonNullable<OutboxSettings["brokerDepth"]> {
  rejectUnknownKeys("outbox.brokerDepth", options, ["limit", "resumeAt", "every"]);
  const limit = wholeNumber("outbox.brokerDepth.limit", options.limit, { min: 1 });
  return Object.freeze({
    limit,
    resumeAt: wholeNumber("outbox.brokerDepth.resumeAt", options.resumeAt ?? Math.floor(limit * 0.8), {
      max: limit - 1,
    }),
    everyMs: milliseconds("outbox.brokerDepth.every", options.every ?? "2s", { min: 10, max: 300_000 }),
  });
}
