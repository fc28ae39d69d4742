import type { Capabilities, Delivery } from "../transport/index.ts";
import type { Message } from "../message/index.ts";
import type { Stage } from "./exercise-stage.ts";

export interface ExerciseCase {
  readonly run: (stage: Stage) => Promise<void>;
  /** What a transport must claim for this to be asked of it. */
  readonly needs?: readonly (keyof Capabilities | "abandon")[];
  /** What a transport must not claim. */
  readonly unless?: readonly (keyof Capabilities)[];
}

/** Cases by the sentence they prove. */
export type ExerciseCases = Readonly<Record<string, ExerciseCase>>;

/** How long nothing must happen before we believe that it will not. */
export const QUIET_MS = 150;

export const inOrder = (key: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${key}${n}`);

export const ofKey = (names: readonly string[], key: string): string[] =>
  names.filter((name) => name.startsWith(key));

/** Batches with one message of each key. */
export const rounds = (stage: Stage, keys: readonly string[], count: number): Message[][] =>
  inOrder("", count).map((n) => keys.map((key) => stage.message({ id: `${key}${n}`, key })));

export const ackAll = (delivery: Delivery): unknown => delivery.ack();
