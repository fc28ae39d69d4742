import { errorText } from "../errors/index.ts";
import type { LaneRow } from "../lanes/index.ts";
import type { DeadRow } from "./settler.ts";

const MAX_TEXT_LENGTH = 2_000;

/** One line for people: no control characters, no more than they would read. */
export function printableErrorText(error: unknown): string {
  const text = errorText(error);
  return printable(text).slice(0, MAX_TEXT_LENGTH);
}

/** A row on its way to the dead letters, with what killed it. */
export function toDeadRow(row: LaneRow, reason: DeadRow["reason"], error?: Error): DeadRow {
  return {
    row,
    charged: reason === "exhausted",
    reason,
    errorType: error?.name ?? "MessageExpired",
    errorMessage:
      error === undefined ? "its time to live was over before it could be sent" : printableErrorText(error),
    stack: error?.stack === undefined ? null : printable(error.stack, "\n").slice(0, 8_000),
  };
}

function printable(text: string, keep = ""): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, (sign) => (keep.includes(sign) ? sign : " "));
}
