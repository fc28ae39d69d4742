import {
  toConditions,
  filterKeys,
  type Conditions,
  type DeadLetterCriteria,
} from "../../dead-letter/index.ts";
import { milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../../options/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";

/** Which open letters; what is left out does not count. */
export type ReplayFilter = Omit<DeadLetterCriteria, "open">;

export interface StagedReplayOptions {
  readonly actor: string;
  readonly reason: string;
  /** Letters for each second, once the ramp is over; 1 to 10,000. Default 50. */
  readonly rate?: number;
  /** How many letters of each cause go first, alone; 1 to 100. Default 3. */
  readonly canary?: number;
  /** How long nothing may come of what was replayed before it is given up to wait. Default "30s". */
  readonly wait?: Duration;
  /** Ends it after what is under way; what was replayed stays replayed. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ReplayProgress) => void;
}

export interface ReplayProgress {
  readonly fingerprint: string;
  readonly label: string;
  readonly stage: "canary" | "ramp" | "rest";
  /** Of all groups together. */
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
