import {
  type Conditions,
  type DeadLetterCriteria,
  filterKeys,
  toConditions,
} from "../../dead-letter/index.ts";
import {
  option,
  type OptionsFrom,
  readOptions,
  readValues,
  rejectUnknownKeys,
  type SettingsFrom,
} from "../../options/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";

/** Selects open dead letters. All given conditions must hold. */
export type ReplayFilter = Omit<DeadLetterCriteria, "open">;

const paceOptions = {
  /** Messages per second after the ramp. Default 50. */
  rate: option.number({ default: 50, min: 1, max: 10_000 }),
  /** Number of messages of each cause that are replayed first. Default 3. */
  canary: option.number({ default: 3, min: 1, max: 100 }),
};

const replayOptions = {
  /** Who replays, for the audit log. */
  actor: option.value<string>({ accepts: "string", required: true }),
  /** Why, for the audit log. */
  reason: option.value<string>({ accepts: "string", required: true }),
  ...paceOptions,
  /** Gives up waiting when replayed messages have had no outcome for this time. Default "30s". */
  wait: option.duration({ default: "30s", min: 100, max: 3_600_000 }),
  /** Stops the replay after the current transaction. Replayed messages stay replayed. */
  signal: option.value<AbortSignal>({ accepts: "AbortSignal" }),
  /** Called after each transaction. */
  onProgress: option.callback<(progress: ReplayProgress) => void>(() => undefined),
};

export interface StagedReplayOptions extends OptionsFrom<typeof replayOptions> {}

export interface ReplayProgress {
  readonly fingerprint: string;
  readonly label: string;
  readonly stage: "canary" | "ramp" | "rest";
  /** Sum over all groups. */
  readonly replayed: number;
  readonly total: number;
}

export interface ReplaySettings extends SettingsFrom<typeof replayOptions> {
  readonly conditions: Conditions;
}

const WHERE = "deadLetters.replayAll";
const prefix = `${WHERE}: `;

export function readReplaySettings(filter: ReplayFilter, options: StagedReplayOptions): ReplaySettings {
  const settings = readOptions(WHERE, replayOptions, options, { prefix });
  return { ...settings, ...readOperator(WHERE, options), conditions: readReplayConditions(filter) };
}

export function readPaceSettings(
  options: Pick<StagedReplayOptions, "rate" | "canary">,
): SettingsFrom<typeof paceOptions> {
  return readValues(WHERE, paceOptions, options, { prefix });
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
