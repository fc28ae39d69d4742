import type { OwnedTransaction } from "../storage/index.ts";
import {
  encodeLeaves,
  LAST_ID,
  LAST_XID,
  laterId,
  NO_HASH,
  sealHash,
  type ChainBounds,
  type Leaf,
  type Seal,
} from "./chain.ts";
import type { AuditStatements, LogName } from "./statements.ts";

/** Where the chain ends, and where the next seal begins. */
interface Head extends ChainBounds {
  readonly number: string;
  readonly hash: string;
  readonly xid_to: string;
  readonly saga_top: string;
  readonly action_top: string;
}

interface HeadRow extends Omit<Head, "number"> {
  readonly number: string | null;
  /** No transaction older than this one still runs. */
  readonly horizon: string;
  readonly now: string;
  /** The hash that the seal has which this process made last. */
  readonly known: string | null;
}

export interface LeafRow extends Leaf {
  readonly log: LogName;
  readonly month: string;
}

/** What one round did. */
export interface SealedRound {
  readonly rows: number;
  readonly seals: number;
  /** There may be more to seal at once. */
  readonly more: boolean;
  /** The chain that had to be begun, since transaction ids went backwards. */
  readonly begun: number | null;
  readonly head: SealedHead | null;
  /** The seal that this process made last is not there any more, or is another one. */
  readonly replaced: boolean;
}

export interface SealedHead {
  readonly number: string;
  readonly hash: string;
}

const EMPTY_HEAD: Head = {
  number: "0",
  chain: 1,
  hash: NO_HASH,
  xid_to: "0",
  saga_after: "0",
  action_after: "0",
  saga_top: "0",
  action_top: "0",
};

/**
 * Seals once, inside the caller's transaction and under its lock. What is older than every running transaction is
 * final, whoever wrote it, so the order of transaction ids is one in which nothing can appear later.
 */
export async function sealRound(
  tx: OwnedTransaction,
  sql: AuditStatements,
  batchSize: number,
  last?: SealedHead,
): Promise<SealedRound> {
  const [row] = (await tx.run<HeadRow>(sql.head, [last?.number ?? null])).rows;
  if (row === undefined) throw new Error("The head of the audit chain could not be read.");
  const head: Head = row.number === null ? EMPTY_HEAD : { ...row, number: row.number };
  const { horizon, now } = row;
  const replaced = last !== undefined && row.known !== last.hash;
  const before = { head, rows: 0, seals: 0 };
  if (BigInt(head.xid_to) <= BigInt(horizon)) {
    const to = await findRangeEnd(tx, sql, head, horizon, batchSize);
    const done = await sealRange(tx, sql, before, { from: head.xid_to, to, now });
    return { ...summarizeProgress(done), more: to !== horizon, begun: null, replaced };
  }
  // Restored from a dump into a server whose transaction ids are lower. What the old one wrote has ids that no
  // transaction here can have had, so it is final: the old chain is closed with it.
  const closed =
    head.xid_to === LAST_XID
      ? before
      : await sealRange(tx, sql, before, { from: head.xid_to, to: LAST_XID, now });
  const { saga_top, action_top } = closed.head;
  const chain = head.chain + 1;
  const anew = { ...closed.head, chain, saga_after: saga_top, action_after: action_top, xid_to: "0" };
  const to = await findRangeEnd(tx, sql, anew, horizon, batchSize);
  const done = await sealRange(tx, sql, { ...closed, head: anew }, { from: "0", to, now });
  if (done.seals === closed.seals)
    return { ...summarizeProgress(closed), more: false, begun: null, replaced };
  return { ...summarizeProgress(done), more: to !== horizon, begun: chain, replaced };
}

interface Progress {
  readonly head: Head;
  readonly rows: number;
  readonly seals: number;
}

function summarizeProgress({ head, rows, seals }: Progress): Pick<SealedRound, "rows" | "seals" | "head"> {
  return { rows, seals, head: head.number === "0" ? null : { number: head.number, hash: head.hash } };
}

interface WaitingRows {
  readonly count: number;
  readonly first: string | null;
  readonly last: string | null;
}

/** Up to where a seal of about that many rows reaches; one transaction is never divided. */
async function findRangeEnd(
  tx: OwnedTransaction,
  sql: AuditStatements,
  { xid_to: from, saga_after, action_after }: Head,
  horizon: string,
  batchSize: number,
): Promise<string> {
  const params = [from, horizon, saga_after, action_after, batchSize + 1];
  const [waiting] = (await tx.run<WaitingRows>(sql.waiting, params)).rows;
  if (waiting === undefined || waiting.count <= batchSize || waiting.last === null) return horizon;
  const to = waiting.last === waiting.first ? (BigInt(waiting.last) + 1n).toString() : waiting.last;
  if (BigInt(to) <= BigInt(from)) throw new Error(`A seal from transaction ${from} cannot reach to ${to}.`);
  return to;
}

/** One seal for each log and month that has rows in the range. */
async function sealRange(
  tx: OwnedTransaction,
  sql: AuditStatements,
  progress: Progress,
  { from, to, now }: { readonly from: string; readonly to: string; readonly now: string },
): Promise<Progress> {
  const { saga_after, action_after } = progress.head;
  const params = [from, to, saga_after, LAST_ID, action_after, LAST_ID];
  const { rows } = await tx.run<LeafRow>(sql.leaves, params);
  let { head, seals } = progress;
  for (const leaves of groupByLogAndMonth(rows)) {
    head = await writeSeal(tx, sql, head, leaves, { from, to, now });
    seals += 1;
  }
  return { head, seals, rows: progress.rows + rows.length };
}

/** The rows come in this order already. */
export function groupByLogAndMonth(rows: readonly LeafRow[]): readonly (readonly LeafRow[])[] {
  const groups: LeafRow[][] = [];
  for (const row of rows) {
    const last = groups.at(-1);
    if (last?.[0]?.log === row.log && last[0].month === row.month) last.push(row);
    else groups.push([row]);
  }
  return groups;
}

async function writeSeal(
  tx: OwnedTransaction,
  sql: AuditStatements,
  head: Head,
  rows: readonly LeafRow[],
  { from, to, now }: { readonly from: string; readonly to: string; readonly now: string },
): Promise<Head> {
  const { log, month } = rows[0] ?? { log: "saga", month: "" };
  const top = rows.reduce(
    (most, { id }) => laterId(most, id),
    log === "saga" ? head.saga_top : head.action_top,
  );
  const seal: Omit<Seal, "hash"> = {
    number: (BigInt(head.number) + 1n).toString(),
    chain: head.chain,
    log,
    month,
    xid_from: from,
    xid_to: to,
    saga_after: head.saga_after,
    action_after: head.action_after,
    saga_top: log === "saga" ? top : head.saga_top,
    action_top: log === "action" ? top : head.action_top,
    row_count: rows.length,
    leaves: encodeLeaves(rows),
    previous_hash: head.hash,
    sealed_at: now,
  };
  const hash = sealHash(seal);
  const { number, chain, saga_after, action_after, saga_top, action_top } = seal;
  const bounds = [saga_after, action_after, saga_top, action_top];
  const what = [seal.row_count, seal.leaves, hash, seal.previous_hash, now];
  await tx.run(sql.seal, [number, chain, log, month, from, to, ...bounds, ...what]);
  return { number, chain, hash, xid_to: to, saga_after, action_after, saga_top, action_top };
}
