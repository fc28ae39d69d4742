import { Loop, random, type Service, systemClock } from "../runtime/index.ts";
import { type Database, explainPostgresError, type Queryable, quoteSchema } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { ChainJudge, findBounds } from "./chain-judge.ts";
import type { ChainBounds, Seal } from "./chain.ts";
import type { Finding, Link } from "./findings.ts";
import { readRetention, type Retention } from "./retention-record.ts";
import { isSameRange, readRounds } from "./seal-rounds.ts";
import { auditStatements, type AuditStatements } from "./statements.ts";
import { judgeRest } from "./verify-rest.ts";

export interface AuditWatchOptions {
  readonly database: Database;
  readonly schema: string;
  readonly observer: Observer;
  readonly everyMs: number;
  /** About how many rows one look compares. Default 5,000. */
  readonly rows?: number;
  /** How many seals one look takes at most, where they cover few rows. Default 250. */
  readonly seals?: number;
  /** Where in the chain the first look begins, from 0 to 1. */
  readonly begin?: () => number;
}

const ROWS = 5_000;
const SEALS = 250;

/**
 * Compares the sealed log with its seals all the time, a bounded piece at a time, round after round. Each process begins
 * somewhere else, so that many of them are through sooner, and one that is started anew every day still sees all of it.
 */
export class AuditWatch implements Service {
  readonly #options: AuditWatchOptions;
  readonly #loop: Loop;
  readonly #reported = new Set<string>();
  #position: ChainPosition;

  constructor(options: AuditWatchOptions) {
    this.#options = options;
    this.#position = { share: (options.begin ?? random)() };
    this.#loop = new Loop({
      step: async (signal) => {
        await this.verifyNext(signal);
        return options.everyMs;
      },
      onError: (error) => this.#reportError(error),
      backoffMs: 1_000,
      maxBackoffMs: 60_000,
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Compares the next piece. Resolves with what is not as it was sealed. */
  async verifyNext(signal?: AbortSignal): Promise<readonly Finding[]> {
    const startedMs = systemClock.monotonicMs();
    const piece = await this.#verifyPiece(signal);
    const findings = piece.findings.length === 0 ? [] : await this.#confirmFindings(piece, signal);
    // What was left in the middle is looked at again.
    if (signal?.aborted === true) return [];
    this.#position = piece.next;
    this.#report(findings);
    const { rows, seals, wrapped } = piece;
    const durationMs = systemClock.monotonicMs() - startedMs;
    const { observer } = this.#options;
    observer.emit("audit.verified", { rows, seals, findings: findings.length, wrapped, durationMs });
    return findings;
  }

  // Months may be dropped, and a chain begun, while we read. Damage stays; so only what is seen twice is damage.
  async #confirmFindings({ findings }: Piece, signal: AbortSignal | undefined): Promise<readonly Finding[]> {
    const seen = new Set((await this.#verifyPiece(signal)).findings.map(({ text }) => text));
    return findings.filter(({ text }) => seen.has(text));
  }

  #verifyPiece(signal: AbortSignal | undefined): Promise<Piece> {
    const { database, schema, rows = ROWS, seals = SEALS } = this.#options;
    return verifyPiece(database, schema, { place: this.#position, rows, seals, signal });
  }

  // The same damage is told once, not round after round; and of much damage of one kind the first.
  #report(findings: readonly Finding[]): void {
    const fresh = findings.filter(({ text }) => !this.#reported.has(text));
    for (const { text } of fresh) this.#reported.add(text);
    for (const kind of new Set(fresh.map((one) => one.kind))) {
      const [first, ...more] = fresh.filter((one) => one.kind === kind);
      if (first === undefined) continue;
      const error = more.length === 0 ? first.text : `${first.text} And ${more.length} more of this kind.`;
      this.#options.observer.emit("audit.broken", { kind, seal: first.seal, error });
    }
  }

  #reportError(error: unknown): void {
    const { observer, schema } = this.#options;
    const explained = explainPostgresError(error, quoteSchema(schema));
    const told = explained instanceof Error ? explained.message : String(explained);
    observer.emit("storage.failed", { doing: "verifying the audit log", error: told, retryInMs: 1_000 });
  }
}

/** Behind which seal a piece begins, or how far along the chain where none is known yet. */
type ChainPosition = { readonly link: Link } | { readonly share: number };

const chainStart: ChainPosition = { share: 0 };

interface PieceRequest {
  readonly place: ChainPosition;
  /** The piece ends with the round in which it has as many. */
  readonly rows: number;
  readonly seals: number;
  readonly signal: AbortSignal | undefined;
}

interface Piece {
  readonly rows: number;
  readonly seals: number;
  readonly findings: readonly Finding[];
  readonly next: ChainPosition;
  /** It reached the end of the chain: the next one begins at its beginning. */
  readonly wrapped: boolean;
}

/** Compares a piece of the chain with the rows that are there. Changes nothing. */
async function verifyPiece(database: Queryable, schema: string, wanted: PieceRequest): Promise<Piece> {
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
