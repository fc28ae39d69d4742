import type { Capabilities, Delivery } from "../transport/index.ts";
import type { Message } from "../message/index.ts";
import type { Hook, ExerciseHarness } from "./exercise-harness.ts";

export interface ExerciseCase {
  readonly run: (stage: ExerciseHarness) => Promise<void>;
  /** What a transport must claim, or its test must offer, for this to be asked of it. */
  readonly needs?: readonly (keyof Capabilities | Hook)[];
  /** What a transport must not claim. */
  readonly unless?: readonly (keyof Capabilities)[];
}

/** Cases by the sentence they prove. */
export type ExerciseCases = Readonly<Record<string, ExerciseCase>>;

/** How long nothing must happen before we believe that it will not. */
export const QUIET_MS = 150;

export const FAILED_RETRY = { charged: true, error: "told to fail" };

export const expectedOrder = (key: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${key}${n}`);

export const filterKey = (names: readonly string[], key: string): string[] =>
  names.filter((name) => name.startsWith(key));

/** Each name where it came first: copies are allowed after a fault, disorder is not. */
export const withoutRepeats = (names: readonly string[]): string[] => [...new Set(names)];

/** Batches with one message of each key. */
export const createRounds = (stage: ExerciseHarness, keys: readonly string[], count: number): Message[][] =>
  expectedOrder("", count).map((n) => keys.map((key) => stage.message({ id: `${key}${n}`, key })));

export const ackAll = (delivery: Delivery): unknown => delivery.ack();
