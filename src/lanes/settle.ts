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
  /** Runs a statement on the session. Default: `session.run`. */
  readonly run?: Run | undefined;
}

export type Run = <R>(session: Queryable, statement: Statement, params: readonly Param[]) => Promise<Rows<R>>;

export interface SettleResult {
  /** Rows settled under a valid claim. Rows of the batch in neither list belong to another worker now. */
  readonly rows: LaneRow[];
  /**
   * Rows that another session has locked, or that follow such a row in their stream. They are still in the table.
   */
  readonly left: LaneRow[];
  readonly xid?: { readonly value: string; readonly reads: number };
  /** Queue lanes that received new deliveries, if the statement reports them. */
  readonly woken: readonly number[];
}

/** Builds the settle statement for these rows and this session. */
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
  /** Only from statements that skip locked rows: the locked lanes, and the seqs of the rows that were left out. */
  readonly busy?: readonly number[];
  readonly left_out?: readonly string[];
}

/**
 * Runs a settle statement under the claims of the rows' lanes. If a claim is no longer valid, the statement changes
 * nothing, and the remaining rows are settled without that lane. If the reply is lost, the statement may be
 * repeated: rows that it has settled already are gone.
 */
export async function settleUnderClaims(
  { ownership, reader, holder, run = runPlainly }: SettleContext,
  batch: readonly LaneRow[],
  buildSettle: BuildSettle,
): Promise<SettleResult> {
  for (;;) {
    // Read the claims again after waiting for the session: a lane may be lost meanwhile. Without claims, do not
    // connect.
    const session = findClaims(ownership, batch).length === 0 ? undefined : await holder.get();
    const claims = findClaims(ownership, batch);
    if (session === undefined || claims.length === 0) return { rows: [], left: [], woken: [] };
    const ours = new Set(claims.map((claim) => claim.lane));
    const rows = batch.filter((row) => ours.has(row.lane));
    const reads = reader.reads();
    const { statement, params } = buildSettle(rows, session);
    const answer = await run<SettleAnswer>(session, statement, [...claimParams(claims), ...params]);
    const { xid, owned, woken, busy = [], left_out: leftOut } = answer.rows[0] ?? NO_ANSWER;
    const good = new Set([...owned, ...busy]);
    if (good.size < claims.length) ownership.lose(claims.filter((claim) => !good.has(claim.lane)));
    // A statement that waits for locks changes nothing unless every claim is valid; one that skips locks decides
    // per lane.
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

/** The keys of the rows, as the parameters that follow the claims in every settle statement. */
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
