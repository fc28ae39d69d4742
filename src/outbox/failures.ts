import { errorText } from "../errors/index.ts";
import type { LaneRow } from "../lanes/index.ts";
import { applyMove, type MessageFacts, type MoveName } from "./message-state.ts";
import type { DeadRow } from "./settler.ts";

const MAX_TEXT_LENGTH = 2_000;

/** Returns the error text as one line without control characters, at most 2,000 characters. */
export function printableErrorText(error: unknown): string {
  const text = errorText(error);
  return printable(text).slice(0, MAX_TEXT_LENGTH);
}

/** The moves of a claimed row that becomes a dead letter. */
const deadLetterMoves: Readonly<Record<DeadRow["reason"], readonly MoveName[]>> = {
  exhausted: ["publish_failed", "move_to_dlq"],
  rejected: ["reject"],
  expired: ["reject"],
};

/**
 * Creates the dead-letter entry of a row from the error that caused it. Throws OUTBOX_ILLEGAL_MOVE if an exhausted row
 * has attempts left.
 */
export function toDeadRow(row: LaneRow, reason: DeadRow["reason"], error?: Error): DeadRow {
  const { attempts, maxAttempts } = row;
  const claimed: MessageFacts = { state: "claimed", attempts, maxAttempts, due: true };
  const dead = deadLetterMoves[reason].reduce(applyMove, claimed);
  return {
    row,
    countsAsAttempt: dead.attempts > attempts,
    reason,
    errorType: error?.name ?? "MessageExpired",
    errorMessage:
      error === undefined ? "its time to live ended before it was sent" : printableErrorText(error),
    stack: error?.stack === undefined ? null : printable(error.stack, "\n").slice(0, 8_000),
  };
}

function printable(text: string, keep = ""): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, (sign) => (keep.includes(sign) ? sign : " "));
}
