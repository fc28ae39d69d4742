import {
  toArrayLiteral,
  type Param,
  type Queryable,
  type Rows,
  type SessionHolder,
  type Statement,
} from "../storage/index.ts";
import type { LaneRow } from "./lane-row.ts";
import type { Claim, LaneOwnership } from "./ownership.ts";
import type { LaneReader } from "./reader.ts";
import { claimParams } from "./statements.ts";

export interface SettleContext {
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly holder: SessionHolder;
  /** How a statement is run on the session. Default: the session runs it. */
  readonly run?: Run | undefined;
}

export type Run = <R>(session: Queryable, statement: Statement, params: readonly Param[]) => Promise<Rows<R>>;

export interface SettleResult {
  /** Those settled under a good claim; the others belong to somebody else now. */
  readonly rows: LaneRow[];
  /** Those that another session has locked, or that wait behind one of these; still in the table. */
  readonly left: LaneRow[];
  readonly xid?: { readonly value: string; readonly reads: number };
  /** Lanes of a queue that have something new, where the statement tells. */
  readonly woken: readonly number[];
}

/** What is asked of the server for these rows, on this session. */
export type BuildSettle = (
  own: readonly LaneRow[],
  session: Queryable,
) => {
  readonly statement: Statement;
  readonly params: readonly Param[];
};

interface SettleAnswer {
  readonly xid: string;
  readonly owned: readonly number[];
  readonly woken?: readonly number[] | null;
  /** Only from statements that pass over locks: lanes that another session has locked, and rows that were left out. */
  readonly busy?: readonly number[];
  readonly left_out?: readonly string[];
}

/**
 * Runs a settle statement under the claims of the rows' lanes. A claim that is no longer good makes the whole statement
 * do nothing; the rest is settled without it. A reply that was lost is no proof of anything: the same statement may be
 * sent again and finds the rows there or gone.
 */
export async function settleUnderClaims(
  { ownership, reader, holder, run = runPlainly }: SettleContext,
  asked: readonly LaneRow[],
  ask: BuildSettle,
): Promise<SettleResult> {
  for (;;) {
    // Asked for again behind the wait: a lane may change hands while a connection is made. Without any claim none is made.
    const session = findClaims(ownership, asked).length === 0 ? undefined : await holder.get();
    const claims = findClaims(ownership, asked);
    if (session === undefined || claims.length === 0) return { rows: [], left: [], woken: [] };
    const ours = new Set(claims.map((claim) => claim.lane));
    const rows = asked.filter((row) => ours.has(row.lane));
    const reads = reader.reads();
    const { statement, params } = ask(rows, session);
    const answer = await run<SettleAnswer>(session, statement, [...claimParams(claims), ...params]);
    const { xid, owned, woken, busy = [], left_out: leftOut } = answer.rows[0] ?? NO_ANSWER;
    const good = new Set([...owned, ...busy]);
    if (good.size < claims.length) ownership.lose(claims.filter((claim) => !good.has(claim.lane)));
    // A statement that waits for locks does nothing unless every claim is good; one that passes over them goes lane by lane.
    if (good.size < claims.length && leftOut === undefined) continue;
    const isLeft = matchLeftOut(busy, leftOut ?? []);
    const [left, settled] = [rows.filter(isLeft), rows.filter((row) => good.has(row.lane) && !isLeft(row))];
    return { rows: settled, left, xid: { value: xid, reads }, woken: woken ?? [] };
  }
}

const runPlainly: Run = (session, statement, params) => session.run(statement, params);

function matchLeftOut(busy: readonly number[], leftOut: readonly string[]): (row: LaneRow) => boolean {
  if (busy.length === 0 && leftOut.length === 0) return () => false;
  const [lanes, seqs] = [new Set(busy), new Set(leftOut.map(Number))];
  return (row) => lanes.has(row.lane) || seqs.has(row.seq);
}

const NO_ANSWER: SettleAnswer = { xid: "0", owned: [] };

/** Where the rows are, as the parameters every settle begins with after the claims. */
export function rowKeyParams(rows: readonly LaneRow[]): [string, string, string] {
  return [
    toArrayLiteral(rows.map((row) => row.lane)),
    toArrayLiteral(rows.map((row) => row.seq)),
    toArrayLiteral(rows.map((row) => row.messageId)),
  ];
}

function findClaims(ownership: LaneOwnership, rows: readonly LaneRow[]): Claim[] {
  const lanes = new Set<number>();
  for (const row of rows) lanes.add(row.lane);
  const sorted = [...lanes].sort((a, b) => a - b);
  return sorted.flatMap((lane) => ownership.claimToSettle(lane) ?? []);
}
