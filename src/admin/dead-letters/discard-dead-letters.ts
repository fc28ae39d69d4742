import { toConditions, filterKeys, type DeadLetterCriteria } from "../../dead-letter/index.ts";
import { rejectUnknownKeys } from "../../options/index.ts";
import { toArrayLiteral } from "../../storage/index.ts";
import { readOperator } from "../sagas/saga-admin.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";
import { toAuditEntry, type ClosedRow } from "./replay-dead-letters.ts";

export interface DiscardOptions {
  readonly actor: string;
  readonly reason: string;
  readonly signal?: AbortSignal;
  readonly onProgress?: (discarded: number) => void;
}

const WHERE = "deadLetters.discardAll";
const PAGE = 500;

export interface DiscardResult {
  readonly discarded: number;
  /** Letters that are still open: somebody else held them just then, or it was stopped. */
  readonly left: number;
  readonly finished: boolean;
}

/**
 * Closes the open letters of a filter for good, page by page, each page with its lines in the audit log. What dies
 * meanwhile stays, and what another operator is about to close is passed over. Resolves with how many, and how many not.
 */
export async function discardDeadLetters(
  admin: DeadLetterAdmin,
  filter: Omit<DeadLetterCriteria, "open">,
  { signal, onProgress, ...by }: DiscardOptions,
): Promise<DiscardResult> {
  rejectUnknownKeys(
    WHERE,
    filter,
    filterKeys.filter((key) => key !== "open"),
  );
  const { names, params } = toConditions(WHERE, filter);
  const operator = readOperator(WHERE, by);
  const { store, sql } = admin;
  const upTo = (await store.database.run<{ id: string }>(sql.newest)).rows[0]?.id ?? "0";
  let discarded = 0;
  while (signal?.aborted !== true) {
    const count = await discardPage(admin, operator, async (tx) => {
      return (await tx.run<DiscardedRow>(sql.discard(names), [upTo, PAGE, ...params])).rows;
    });
    discarded += count;
    onProgress?.(discarded);
    if (count < PAGE) break;
  }
  const { rows } = await store.database.run<{ left_open: number }>(sql.leftOpen(names), [upTo, ...params]);
  const left = rows[0]?.left_open ?? 0;
  return { discarded, left, finished: left === 0 };
}

type DiscardedRow = Omit<ClosedRow, "lane" | "stream">;
type Transaction = Awaited<ReturnType<DeadLetterAdmin["store"]["database"]["begin"]>>;

async function discardPage(
  { store, sql, wake }: DeadLetterAdmin,
  by: { readonly actor: string; readonly reason: string },
  close: (tx: Transaction) => Promise<readonly DiscardedRow[]>,
): Promise<number> {
  const tx = await store.database.begin();
  try {
    const rows = await close(tx);
    const holding = rows.filter((row) => row.held_lane !== null);
    if (holding.length > 0) await tx.run(sql.freeKeys, [toArrayLiteral(holding.map(({ id }) => id))]);
    await store.audit.recordAllDone(
      tx,
      rows.map((row) => toAuditEntry(row, "discard", by)),
    );
    await tx.commit();
    await wake(holding.flatMap(({ held_lane: lane }) => lane ?? []));
    return rows.length;
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}
