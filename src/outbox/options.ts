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
  /** How many messages may wait per topic. The count is an estimate, refreshed every second. */
  readonly maxPending: number;
  /** What happens to the next one: an error, a wait before BEGIN (bus.transaction, bus.admit), or silence. Default "refuse". */
  readonly policy?: OverflowPolicy;
  /** How long "wait" waits before it becomes an error. Default "30s". */
  readonly timeout?: Duration | number;
}

export interface BreakerOptions {
  /** After this many failed batches in a row nothing is sent to a topic until its broker was probed. Default 3. */
  readonly failures?: number;
  /** How long the first time; it doubles with each probe that fails. Default "1s". */
  readonly cooldown?: Duration | number;
  /** Where it stops growing. Default "30s". */
  readonly maxCooldown?: Duration | number;
}

export interface BrokerDepthOptions {
  /** A topic with this many messages waiting at the broker for their slowest group is paused. */
  readonly limit: number;
  /** It goes on when no more than this many are left. Default: four fifths of the limit. */
  readonly resumeAt?: number;
  /** How often the broker is asked. Default "2s". */
  readonly every?: Duration | number;
}

export interface OutboxOptions {
  /** How many messages one batch may hold. Default 500. */
  readonly batchSize?: number;
  /** How long an idle relay waits before it looks everywhere. Default "1s". */
  readonly pollInterval?: Duration | number;
  /** How long one publish to the transport may take before its outcome counts as unknown. Default "30s". */
  readonly publishTimeout?: Duration | number;
  /** Failures of a message's own. Default 10 attempts, 2 s × 2 up to 1 h, full jitter. */
  readonly retry?: RetryOptions;
  /** Whether the process that wrote a message sends it right after the commit. Default true. */
  readonly optimistic?: boolean;
  /** How long that may take before the relay takes over. Default "2s". */
  readonly optimisticTimeout?: Duration | number;
  /** A low priority rises by one for each of these that it has waited. Default "10s". */
  readonly ageing?: Duration | number;
  /** How long sent messages are kept. Default "30d". */
  readonly retention?: Duration | number;
  /** No limit unless given. */
  readonly overflow?: OverflowOptions;
  /** When a topic is left alone because its broker does not answer. Nothing is charged to its messages. */
  readonly breaker?: BreakerOptions;
  /** Pauses a topic whose queue at the broker is full, where the transport tells. No limit unless given; `transport_depth` is shown all the same. */
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
