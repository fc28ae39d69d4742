import {
  type Conditions,
  type DeadLetterCriteria,
  filterKeys,
  toConditions,
} from "../../dead-letter/index.ts";
import { type Duration, milliseconds, rejectUnknownKeys, wholeNumber } from "../../options/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";

/** Selects open dead letters. All given conditions must hold. */
export type ReplayFilter = Omit<DeadLetterCriteria, "open">;

export interface StagedReplayOptions {
  readonly actor: string;
  readonly reason: string;
  /** Messages per second after the ramp, 1 to 10,000. Default 50. */
  readonly rate?: number;
  /** Number of messages of each cause that are replayed first, 1 to 100. Default 3. */
  readonly canary?: number;
  /** Gives up waiting when replayed messages have had no outcome for this time. Default "30s". */
  readonly wait?: Duration;
  /** Stops the replay after the current transaction. Replayed messages stay replayed. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ReplayProgress) => void;
}

export interface ReplayProgress {
  readonly fingerprint: string;
  readonly label: string;
  readonly stage: "canary" | "ramp" | "rest";
  /** Sum over all groups. */
  readonly replayed: number;
  readonly total: number;
}

export interface ReplaySettings {
  readonly actor: string;
  readonly reason: string;
  readonly rate: number;
  readonly canary: number;
  readonly waitMs: number;
  readonly conditions: Conditions;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: (progress: ReplayProgress) => void;
}

const WHERE = "deadLetters.replayAll";
const KNOWN = ["actor", "reason", "rate", "canary", "wait", "signal", "onProgress"];

export function readReplaySettings(filter: ReplayFilter, options: StagedReplayOptions): ReplaySettings {
  rejectUnknownKeys(WHERE, options, KNOWN);
  return {
    ...readOperator(WHERE, options),
    ...readPaceSettings(options),
    waitMs: milliseconds(`${WHERE}: wait`, options.wait ?? "30s", { min: 100, max: 3_600_000 }),
    conditions: readReplayConditions(filter),
    signal: options.signal,
    onProgress: options.onProgress ?? (() => undefined),
  };
}

export function readPaceSettings({ rate = 50, canary = 3 }: Pick<StagedReplayOptions, "rate" | "canary">) {
  return {
    rate: wholeNumber(`${WHERE}: rate`, rate, { min: 1, max: 10_000 }),
    canary: wholeNumber(`${WHERE}: canary`, canary, { min: 1, max: 100 }),
  };
}

export function readReplayConditions(filter: ReplayFilter): Conditions {
  rejectUnknownKeys(
    WHERE,
    filter,
    filterKeys.filter((key) => key !== "open"),
  );
  return toConditions(WHERE, filter);
}

/** Part of a staged replay: replays `count` messages at this rate, then waits for all outcomes. */
export interface Stage {
  readonly name: "canary" | "ramp" | "rest";
  readonly perSecond: number;
  readonly count: number;
}

/** Duration of each ramp stage. */
const RAMP_SECONDS = 1;
const RAMP = [8, 4, 2] as const;

/** Plans the stages: the canary, one second each at 1/8, 1/4 and 1/2 of the rate, then the full rate. */
export function planStages({
  canary,
  rate,
}: {
  readonly canary: number;
  readonly rate: number;
}): readonly Stage[] {
  const ramp = RAMP.map((share): Stage => {
    const perSecond = Math.max(1, rate / share);
    return { name: "ramp", perSecond, count: Math.ceil(perSecond * RAMP_SECONDS) };
  }).filter(({ perSecond }) => perSecond < rate);
  const rest: Stage = { name: "rest", perSecond: rate, count: Number.POSITIVE_INFINITY };
  return [{ name: "canary", perSecond: rate, count: canary }, ...ramp, rest];
}

/** Returns the batch size for ten transactions per second, 1 to 200. */
export function chunkSize({ perSecond }: Stage): number {
  return Math.max(1, Math.min(200, Math.ceil(perSecond / 10)));
}

/** Returns the upper bound for messages in flight: two seconds' worth, 10 to 2,000. A slow consumer thus limits the rate. */
export function maxInFlight({ perSecond }: Stage): number {
  return Math.max(10, Math.min(2_000, Math.ceil(perSecond * 2)));
}
