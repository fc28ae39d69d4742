import { decideRetry, type RetryPolicy } from "../retry/index.ts";
import { toDeadRow, printableErrorText } from "./failures.ts";
import type { SortedOutcomes } from "./publish-batch.ts";
import type { DeadRow, FailedRow } from "./settler.ts";

/** Pure: which of a batch's failures get another attempt, and which have had their last. */
export function retryOrDeadLetter(
  sorted: Pick<SortedOutcomes, "charged" | "refused">,
  policy: RetryPolicy,
  random: () => number,
): { readonly failed: FailedRow[]; readonly dead: DeadRow[] } {
  const failed: FailedRow[] = [];
  const dead: DeadRow[] = sorted.refused.map(({ row, error }) => toDeadRow(row, "rejected", error));
  for (const { row, error } of sorted.charged) {
    const own = { ...policy, maxAttempts: row.maxAttempts };
    const decision = decideRetry(
      own,
      { attempt: row.attempts + 1, unchargedBefore: 0 },
      { kind: "retryable" },
      random,
    );
    if (decision.kind === "dead") dead.push(toDeadRow(row, "exhausted", error));
    else failed.push({ row, delayMs: decision.delayMs, error: printableErrorText(error) });
  }
  return { failed, dead };
}
