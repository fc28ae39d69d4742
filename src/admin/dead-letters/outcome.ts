import { computeFingerprint, isSameFailure } from "../../dead-letter/index.ts";
import type { Stage } from "./stages.ts";

/** A replayed letter on its way, and what it died of. */
export interface InFlightReplay {
  readonly id: string;
  readonly line: "outbox" | "queue";
  readonly lane: number;
  readonly seq: string;
  /** Of its topic and key; null where it has no key. */
  readonly stream: string | null;
  readonly fingerprint: string;
  readonly errorMessage: string;
}

/** What the database says about a flight. */
export interface OutcomeRow {
  readonly id: string;
  readonly waiting: boolean;
  readonly attempts: number;
  readonly last_error: string | null;
  readonly letter: string | null;
  readonly fingerprint: string | null;
  readonly consumer: string | null;
  readonly type: string | null;
  readonly reason: Parameters<typeof computeFingerprint>[0]["reason"] | null;
  readonly error_type: string | null;
  readonly error_message: string | null;
}

/** `failing`: an attempt has failed like before; it is tried again, and nobody need wait for that to know. */
export type Outcome =
  | { readonly kind: "waiting" }
  | { readonly kind: "handled" }
  | { readonly kind: "failing"; readonly error: string }
  | { readonly kind: "died"; readonly letter: string; readonly same: boolean; readonly error: string };

export function judgeOutcome(flight: InFlightReplay, row: OutcomeRow): Outcome {
  if (row.letter !== null) {
    const errors = { errorType: row.error_type ?? "", errorMessage: row.error_message ?? "" };
    const { consumer, type, reason } = row;
    const now =
      row.fingerprint ??
      computeFingerprint({ consumer, type: type ?? "", reason: reason ?? "rejected", ...errors });
    const error = `${errors.errorType}: ${errors.errorMessage}`;
    return { kind: "died", letter: row.letter, same: now === flight.fingerprint, error };
  }
  if (!row.waiting) return { kind: "handled" };
  const isFailing = row.attempts > 0 && row.last_error !== null && isSameFailure(flight, row.last_error);
  return isFailing ? { kind: "failing", error: row.last_error ?? "" } : { kind: "waiting" };
}

/** What came of the letters of a group so far. */
export interface Tally {
  readonly replayed: number;
  readonly handled: number;
  /** Dead again of the same cause, and of another one. */
  readonly diedSame: number;
  readonly diedOtherwise: number;
  /** Being tried again after the same failure. */
  readonly failing: number;
  /** How the last of them failed. */
  readonly error: string | null;
}

/** Deaths of other causes may be anything; this many of them are no accident. */
const MAX_OTHER_DEATHS = 3;
const MAX_OTHER_SHARE = 0.05;

/** Why a group must not go on, or undefined. The same failure once is enough; in the canary, any failure is. */
export function reasonToStop(stage: Stage["name"], tally: Tally): string | undefined {
  const { handled, diedSame, diedOtherwise, failing, error } = tally;
  const how = error === null ? "" : `: ${error}`;
  if (diedSame + failing > 0) return `the same failure came back${how}`;
  if (stage === "canary" && diedOtherwise > 0) return `the canary died of another failure${how}`;
  const most = Math.max(MAX_OTHER_DEATHS, (handled + diedOtherwise) * MAX_OTHER_SHARE);
  return diedOtherwise > most ? `${diedOtherwise} letters died of another failure${how}` : undefined;
}
