import { quoteSchema, type Queryable } from "../storage/index.ts";
import type { ChainBounds, Seal } from "./chain.ts";
import { findBounds, ChainJudge } from "./chain-judge.ts";
import type { Finding, Link } from "./findings.ts";
import { readRetention, type Retention } from "./retention-record.ts";
import { readRounds, isSameRange } from "./seal-rounds.ts";
import { auditStatements, type AuditStatements } from "./statements.ts";
import { judgeRest } from "./verify-rest.ts";

/** Behind which seal a piece begins, or how far along the chain where none is known yet. */
export type ChainPosition = { readonly link: Link } | { readonly share: number };

const chainStart: ChainPosition = { share: 0 };

export interface PieceRequest {
  readonly place: ChainPosition;
  /** The piece ends with the round in which it has as many. */
  readonly rows: number;
  readonly seals: number;
  readonly signal: AbortSignal | undefined;
}

export interface Piece {
  readonly rows: number;
  readonly seals: number;
  readonly findings: readonly Finding[];
  readonly next: ChainPosition;
  /** It reached the end of the chain: the next one begins at its beginning. */
  readonly wrapped: boolean;
}

/** Compares a piece of the chain with the rows that are there. Changes nothing. */
export async function verifyPiece(database: Queryable, schema: string, wanted: PieceRequest): Promise<Piece> {
  const quoted = quoteSchema(schema);
  const sql = auditStatements(quoted);
  const retention = await readRetention(database, sql, quoted);
  const { rows: chains } = await database.run<ChainBounds>(sql.chains);
  const start = await findStart(database, sql, wanted.place, retention.anchor);
  const judge = new ChainJudge(database, sql, quoted);
  const findings: Finding[] = [];
  let [link, rows, seals] = [start.link, 0, 0];
  for await (const round of readRounds(database, sql, start.link.number)) {
    const [one] = round.seals;
    const last = round.seals.at(-1);
    if (one === undefined || last === undefined) continue;
    // Where we begin in the middle of a round, its rows belong to seals that we have not read.
    if (start.seal !== undefined && isSameRange(start.seal, one)) {
      link = last;
      continue;
    }
    const judged = await judge.judgeRound(link, round, findBounds(round, chains));
    link = judged.link;
    rows += judged.rows + judged.droppedRows;
    seals += round.seals.length;
    findings.push(...judged.findings);
    if (rows >= wanted.rows || seals >= wanted.seals || wanted.signal?.aborted === true)
      return { rows, seals, findings, next: { link }, wrapped: false };
  }
  findings.push(...retention.findings, ...(await verifyRest(database, sql, chains, retention)));
  return { rows, seals, findings, next: chainStart, wrapped: true };
}

interface Start {
  readonly link: Link;
  /** Where it is not the beginning of a round. */
  readonly seal?: Seal;
}

async function findStart(
  database: Queryable,
  sql: AuditStatements,
  place: ChainPosition,
  anchor: Link,
): Promise<Start> {
  if ("link" in place)
    return { link: BigInt(place.link.number) < BigInt(anchor.number) ? anchor : place.link };
  if (place.share === 0) return { link: anchor };
  const [head] = (await database.run<{ number: string | null }>(sql.head, [null])).rows;
  const kept = Number(BigInt(head?.number ?? anchor.number) - BigInt(anchor.number));
  const before = BigInt(anchor.number) + BigInt(Math.floor(Math.max(0, kept) * place.share));
  if (before === BigInt(anchor.number)) return { link: anchor };
  const [seal] = (await database.run<Seal>(sql.seals, [(before - 1n).toString(), 1])).rows;
  return seal === undefined ? { link: anchor } : { link: seal, seal };
}

async function verifyRest(
  database: Queryable,
  sql: AuditStatements,
  chains: readonly ChainBounds[],
  { anchor }: Retention,
): Promise<readonly Finding[]> {
  const [first] = (await database.run<Seal>(sql.seals, ["0", 1])).rows;
  return (await judgeRest(database, sql, { first, chains, anchor })).findings;
}
