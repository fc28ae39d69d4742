import { decideRetry, type RetryPolicy } from "../retry/index.ts";
import { deathOf, failureText } from "./failures.ts";
import type { Sorted } from "./publish-batch.ts";
import type { Dying, Failed } from "./settler.ts";

/** Pure: which of a batch's failures get another attempt, and which have had their last. */
export function retryOrDie(
  sorted: Pick<Sorted, "charged" | "refused">,
  policy: RetryPolicy,
  random: () => number,
): { readonly failed: Failed[]; readonly dead: Dying[] } {
  const failed: Failed[] = [];
  const dead: Dying[] = sorted.refused.map(({ row, error }) => deathOf(row, "rejected", error));
  for (const { row, error } of sorted.charged) {
    const own = { ...policy, maxAttempts: row.maxAttempts };
    const decision = decideRetry(
      own,
      { attempt: row.attempts + 1, unchargedBefore: 0 },
      { kind: "retryable" },
      random,
    );
    if (decision.kind === "dead") dead.push(deathOf(row, "exhausted", error));
    else failed.push({ row, delayMs: decision.delayMs, error: failureText(error) });
  }
  return { failed, dead };
}
