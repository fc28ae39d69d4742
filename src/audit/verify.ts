import { rejectUnknownKeys, text } from "../options/index.ts";
import { explainPostgresError, type Queryable, quoteSchema } from "../storage/index.ts";
import { type Bounds, ChainJudge, findBounds, readRounds, type Round } from "./chain-judge.ts";
import { type ChainBounds, LAST_ID, type Seal } from "./chain.ts";
import type { Finding, Link } from "./findings.ts";
import { readRetention } from "./retention.ts";
import { auditStatements, type AuditStatements, type LogName } from "./statements.ts";

export interface VerifyOptions {
  /** A head that `audit verify` printed earlier and that was stored elsewhere. The chain must still contain it. */
  readonly anchor?: string;
  readonly onProgress?: (progress: VerifyProgress) => void;
  /** Stops between two rounds of seals. The report then covers the part that was read. */
  readonly signal?: AbortSignal;
}

export interface VerifyProgress {
  readonly seals: number;
  readonly totalSeals: number;
  readonly rows: number;
}

export interface VerifyReport {
  readonly ok: boolean;
  readonly seals: number;
  readonly chains: number;
  /** Number of rows compared with their seals. */
  readonly rows: number;
  /** Number of rows in months dropped after their retention. Their seals are still in the chain. */
  readonly droppedRows: number;
  /** Rows that are not sealed yet, so that changes of them cannot be detected. */
  readonly unsealed: { readonly count: number; readonly oldest: string | null };
  /** Number and hash of the last seal. A copy outside the database later proves that the end was not replaced. */
  readonly head: string | null;
  /** False if `signal` stopped the verification. */
  readonly finished: boolean;
  /** The first 1,000 findings. */
  readonly findings: readonly Finding[];
  readonly findingCount: number;
}

const MAX_FINDINGS = 1_000;

/** Recomputes the whole hash chain from the stored rows. Read-only. Throws OPTIONS_INVALID for an invalid anchor. */
export async function verifyAudit(
  database: Queryable,
  schema: string,
  options: VerifyOptions = {},
): Promise<VerifyReport> {
  rejectUnknownKeys("audit.verify", options, ["anchor", "onProgress", "signal"]);
  const quoted = quoteSchema(schema);
  try {
    return await new Verification(database, quoted, options).run();
  } catch (error) {
    throw explainPostgresError(error, quoted);
  }
}

class Verification {
  readonly #database: Queryable;
  readonly #schema: string;
  readonly #sql: AuditStatements;
  readonly #judge: ChainJudge;
  readonly #options: VerifyOptions;
  readonly #anchor: { readonly number: string | undefined; readonly hash: string } | undefined;
  readonly #findings: Finding[] = [];
  #findingCount = 0;
  #anchorSeen = false;
  #seals = 0;
  #rows = 0;
  #droppedRows = 0;

  constructor(database: Queryable, quoted: string, options: VerifyOptions) {
    this.#database = database;
    this.#schema = quoted;
    this.#sql = auditStatements(quoted);
    this.#judge = new ChainJudge(database, this.#sql, quoted);
    this.#options = options;
    this.#anchor = options.anchor === undefined ? undefined : parseAnchor(options.anchor);
  }

  async run(): Promise<VerifyReport> {
    const { rows: chains } = await this.#database.run<ChainBounds & { seals: number }>(this.#sql.sealTotals);
    const totalSeals = chains.reduce((sum, { seals }) => sum + seals, 0);
    const { anchor, findings } = await readRetention(this.#database, this.#sql, this.#schema);
    this.#addFindings(findings);
    let link: Link = anchor;
    this.#matchAnchor(link);
    let first: Seal | undefined;
    let finished = true;
    for await (const round of readRounds(this.#database, this.#sql)) {
      first ??= round.seals[0];
      link = await this.#judgeRound(link, round, findBounds(round, chains));
      this.#options.onProgress?.({ seals: this.#seals, totalSeals, rows: this.#rows });
      if (this.#options.signal?.aborted !== true) continue;
      finished = false;
      break;
    }
    const rest = finished
      ? await judgeUnsealedRows(this.#database, this.#sql, { first, chains, anchor })
      : undefined;
    this.#addFindings(rest?.findings ?? []);
    if (finished) this.#judgeAnchor();
    return this.#report(link, chains.length, finished, rest);
  }

  async #judgeRound(before: Link, round: Round, bounds: Bounds): Promise<Link> {
    const { link, rows, droppedRows, findings } = await this.#judge.judgeRound(before, round, bounds);
    for (const seal of round.seals) this.#matchAnchor(seal);
    this.#seals += round.seals.length;
    this.#rows += rows;
    this.#droppedRows += droppedRows;
    this.#addFindings(findings);
    return link;
  }

  #matchAnchor({ number, hash }: Link): void {
    const anchor = this.#anchor;
    if (anchor?.hash === hash && (anchor.number ?? number) === number) this.#anchorSeen = true;
  }

  #judgeAnchor(): void {
    if (this.#anchor === undefined || this.#anchorSeen) return;
    const { number, hash } = this.#anchor;
    this.#addFindings([
      {
        kind: "anchor_missing",
        log: null,
        id: null,
        seal: number ?? null,
        text:
          `No seal${number === undefined ? "" : ` ${number}`} has the hash ${hash}: the end of the chain was replaced, ` +
          "or the anchor belongs to another database, or is older than the oldest stored seal.",
      },
    ]);
  }

  #addFindings(findings: readonly Finding[]): void {
    this.#findingCount += findings.length;
    this.#findings.push(...findings.slice(0, MAX_FINDINGS - this.#findings.length));
  }

  #report(link: Link, chains: number, finished: boolean, rest: UnsealedReport | undefined): VerifyReport {
    return {
      ok: this.#findingCount === 0,
      seals: this.#seals,
      chains,
      rows: this.#rows,
      droppedRows: this.#droppedRows,
      unsealed: rest?.unsealed ?? { count: 0, oldest: null },
      head: this.#seals === 0 ? null : `${link.number}:${link.hash}`,
      finished,
      findings: this.#findings,
      findingCount: this.#findingCount,
    };
  }
}

function parseAnchor(given: string): { readonly number: string | undefined; readonly hash: string } {
  text("audit.verify: anchor", given, { pattern: /^(\d{1,18}:)?[0-9a-fA-F]{64}$/ });
  const [hash = "", number] = given.toLowerCase().split(":").toReversed();
  return { number, hash };
}

/** Rows that no seal covers. */
export interface UnsealedReport {
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

/** The stored chain, as far as it was read. */
export interface VerifiedChain {
  readonly first: Seal | undefined;
  readonly chains: readonly ChainBounds[];
  /** The seal before the first stored one, if older seals were dropped. */
  readonly anchor: Link;
}

/** Counts the unsealed rows, and reports rows outside the seals that cannot be legitimate. */
export async function judgeUnsealedRows(
  database: Queryable,
  sql: AuditStatements,
  seen: VerifiedChain,
): Promise<UnsealedReport> {
  const [head] = (await database.run<HeadRow>(sql.head, [null])).rows;
  const { xid_to: sealedTo, horizon = "0" } = head ?? { xid_to: null };
  const restored = BigInt(sealedTo ?? "0") > BigInt(horizon);
  // After a restore, the rows of the next chain; otherwise the rows after the last seal.
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
      text: `${count} row(s) have the id of a transaction that never existed, so they would never be sealed: ${names}.`,
    },
  ];
}

/** Finds rows that only dropped seals could have covered. */
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
    text: `Row ${id} of the ${log} log (${at}) is older than the first stored seal, but all rows up to there were dropped.`,
  }));
}
