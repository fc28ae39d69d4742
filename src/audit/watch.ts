import { errorText } from "../errors/index.ts";
import { type FailedRound, PeriodicService, random, systemClock } from "../runtime/index.ts";
import { type Database, explainPostgresError, type Queryable, quoteSchema } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { ChainJudge, findBounds, isSameRange, readRounds } from "./chain-judge.ts";
import type { ChainBounds, Seal } from "./chain.ts";
import type { Finding, Link } from "./findings.ts";
import { readRetention, type Retention } from "./retention.ts";
import { auditStatements, type AuditStatements } from "./statements.ts";
import { judgeUnsealedRows } from "./verify.ts";

export interface AuditWatchOptions {
  readonly database: Database;
  readonly schema: string;
  readonly observer: Observer;
  readonly everyMs: number;
  /** Approximate number of rows that one check compares. Default 5,000. */
  readonly rows?: number;
  /** Upper bound for the seals that one check reads. Default 250. */
  readonly seals?: number;
  /** Returns the position in the chain where the first check starts, from 0 to 1. Default: random. */
  readonly begin?: () => number;
}

const ROWS = 5_000;
const SEALS = 250;

/**
 * Verifies the sealed log continuously, one bounded section per interval, and starts over at the end of the chain. Each
 * process starts at a random position, so that several processes cover the chain sooner, and a process that is restarted
 * every day still covers all of it.
 */
export class AuditWatch extends PeriodicService {
  readonly #options: AuditWatchOptions;
  readonly #reported = new Set<string>();
  #position: ChainPosition;

  constructor(options: AuditWatchOptions) {
    super({ everyMs: options.everyMs });
    this.#options = options;
    this.#position = { share: (options.begin ?? random)() };
  }

  /** Verifies the next section and resolves with its findings. */
  async verifyNext(signal?: AbortSignal): Promise<readonly Finding[]> {
    const startedMs = systemClock.monotonicMs();
    const piece = await this.#verifyPiece(signal);
    const findings = piece.findings.length === 0 ? [] : await this.#confirmFindings(piece, signal);
    // An interrupted section is verified again next time.
    if (signal?.aborted === true) return [];
    this.#position = piece.next;
    this.#report(findings);
    const { rows, seals, wrapped } = piece;
    const durationMs = systemClock.monotonicMs() - startedMs;
    const { observer } = this.#options;
    observer.emit("audit.verified", { rows, seals, findings: findings.length, wrapped, durationMs });
    return findings;
  }

  protected override async runRound(signal: AbortSignal): Promise<void> {
    await this.verifyNext(signal);
  }

  // A month may be dropped, or a chain started, during the check. Real damage is permanent, so only findings that a second
  // check repeats are reported.
  async #confirmFindings({ findings }: Piece, signal: AbortSignal | undefined): Promise<readonly Finding[]> {
    const seen = new Set((await this.#verifyPiece(signal)).findings.map(({ text }) => text));
    return findings.filter(({ text }) => seen.has(text));
  }

  #verifyPiece(signal: AbortSignal | undefined): Promise<Piece> {
    const { database, schema, rows = ROWS, seals = SEALS } = this.#options;
    return verifyPiece(database, schema, { position: this.#position, rows, seals, signal });
  }

  // Emits each finding once per process, and only the first of many findings of one kind.
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

  protected override onFailure({ error, retryInMs }: FailedRound): void {
    const { observer, schema } = this.#options;
    const explained = explainPostgresError(error, quoteSchema(schema));
    observer.emit("storage.failed", {
      doing: "verifying the audit log",
      error: errorText(explained),
      retryInMs,
    });
  }
}

/** The seal after which a section starts, or the share of the chain before it if no seal is known yet. */
type ChainPosition = { readonly link: Link } | { readonly share: number };

const chainStart: ChainPosition = { share: 0 };

interface PieceRequest {
  readonly position: ChainPosition;
  /** The section ends with the round that reaches this number of rows or seals. */
  readonly rows: number;
  readonly seals: number;
  readonly signal: AbortSignal | undefined;
}

interface Piece {
  readonly rows: number;
  readonly seals: number;
  readonly findings: readonly Finding[];
  readonly next: ChainPosition;
  /** True if the section reached the end of the chain, so that the next one starts at the beginning. */
  readonly wrapped: boolean;
}

/** Compares a section of the chain with the stored rows. Read-only. */
async function verifyPiece(database: Queryable, schema: string, wanted: PieceRequest): Promise<Piece> {
  const quoted = quoteSchema(schema);
  const sql = auditStatements(quoted);
  const retention = await readRetention(database, sql, quoted);
  const { rows: chains } = await database.run<ChainBounds>(sql.chains);
  const start = await findStart(database, sql, wanted.position, retention.anchor);
  const judge = new ChainJudge(database, sql, quoted);
  const findings: Finding[] = [];
  let [link, rows, seals] = [start.link, 0, 0];
  for await (const round of readRounds(database, sql, start.link.number)) {
    const [one] = round.seals;
    const last = round.seals.at(-1);
    if (one === undefined || last === undefined) continue;
    // When the section starts inside a round, the rows of that round also belong to seals that were not read.
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
  findings.push(...retention.findings, ...(await verifyUnsealedRows(database, sql, chains, retention)));
  return { rows, seals, findings, next: chainStart, wrapped: true };
}

interface Start {
  readonly link: Link;
  /** The seal before the start, if it may be inside a round. */
  readonly seal?: Seal;
}

async function findStart(
  database: Queryable,
  sql: AuditStatements,
  position: ChainPosition,
  anchor: Link,
): Promise<Start> {
  if ("link" in position)
    return { link: BigInt(position.link.number) < BigInt(anchor.number) ? anchor : position.link };
  if (position.share === 0) return { link: anchor };
  const [head] = (await database.run<{ number: string | null }>(sql.head, [null])).rows;
  const kept = Number(BigInt(head?.number ?? anchor.number) - BigInt(anchor.number));
  const before = BigInt(anchor.number) + BigInt(Math.floor(Math.max(0, kept) * position.share));
  if (before === BigInt(anchor.number)) return { link: anchor };
  const [seal] = (await database.run<Seal>(sql.seals, [(before - 1n).toString(), 1])).rows;
  return seal === undefined ? { link: anchor } : { link: seal, seal };
}

async function verifyUnsealedRows(
  database: Queryable,
  sql: AuditStatements,
  chains: readonly ChainBounds[],
  { anchor }: Retention,
): Promise<readonly Finding[]> {
  const [first] = (await database.run<Seal>(sql.seals, ["0", 1])).rows;
  return (await judgeUnsealedRows(database, sql, { first, chains, anchor })).findings;
}
