import type { Queryable } from "../storage/index.ts";
import { LAST_ID, type ChainBounds, type Seal } from "./chain.ts";
import type { Finding, Link } from "./findings.ts";
import type { AuditStatements, LogName } from "./statements.ts";

/** What lies outside all seals. */
export interface Rest {
  readonly unsealed: { readonly count: number; readonly oldest: string | null };
  readonly findings: readonly Finding[];
}

interface HeadRow {
  readonly horizon: string;
  readonly xid_to: string | null;
  readonly saga_after: string | null;
  readonly action_after: string | null;
  readonly saga_top: string | null;
  readonly action_top: string | null;
}

interface UncoveredRows {
  readonly count: number;
  readonly oldest: string | null;
  readonly some: string | null;
}

/** What the walk along the chain has met. */
export interface VerifiedChain {
  readonly first: Seal | undefined;
  readonly chains: readonly ChainBounds[];
  /** Where the chain begins, when older seals were dropped. */
  readonly anchor: Link;
}

export async function judgeRest(
  database: Queryable,
  sql: AuditStatements,
  seen: VerifiedChain,
): Promise<Rest> {
  const [head] = (await database.run<HeadRow>(sql.head, [null])).rows;
  const { xid_to: sealedTo, horizon = "0" } = head ?? { xid_to: null };
  const restored = BigInt(sealedTo ?? "0") > BigInt(horizon);
  // After a restore, what a new chain will be about; else what comes behind the last seal.
  const params = restored
    ? ["0", head?.saga_top ?? "0", head?.action_top ?? "0"]
    : [sealedTo ?? "0", head?.saga_after ?? "0", head?.action_after ?? "0"];
  const [unsealed] = (await database.run<UncoveredRows>(sql.unsealed, params)).rows;
  const impossible = restored ? [] : (await database.run<UncoveredRows>(sql.impossible, params)).rows;
  return {
    unsealed: { count: unsealed?.count ?? 0, oldest: unsealed?.oldest ?? null },
    findings: [...impossible.flatMap(reportImpossibleRows), ...(await findRowsBefore(database, sql, seen))],
  };
}

function reportImpossibleRows({ count, some }: UncoveredRows): Finding[] {
  if (count === 0) return [];
  const names = (some ?? "").replaceAll(/[{}"]/g, "").replaceAll(",", ", ");
  return [
    {
      kind: "row_added",
      log: null,
      id: null,
      seal: null,
      text: `${count} row(s) name a transaction that has never been, so nobody would seal them: ${names}.`,
    },
  ];
}

/** Where old seals were dropped: rows that only they could have covered. */
async function findRowsBefore(
  database: Queryable,
  sql: AuditStatements,
  { first, chains, anchor }: VerifiedChain,
): Promise<Finding[]> {
  const begins = BigInt(anchor.number) + 1n;
  if (first === undefined || begins === 1n || BigInt(first.number) !== begins) return [];
  const next = chains.find(({ chain }) => chain === first.chain + 1);
  const params = [
    first.xid_from,
    first.saga_after,
    first.action_after,
    next?.saga_after ?? LAST_ID,
    next?.action_after ?? LAST_ID,
  ];
  const { rows } = await database.run<{ log: LogName; id: string; at: string }>(sql.before, params);
  return rows.map(({ log, id, at }) => ({
    kind: "row_added",
    log,
    id,
    seal: null,
    text: `Row ${id} of the ${log} log (${at}) lies before the first seal that is kept, where nothing was left.`,
  }));
}
