import { rejectUnknownKeys, text } from "../options/index.ts";
import { explainPostgresError, quoteSchema, type Queryable } from "../storage/index.ts";
import type { ChainBounds, Seal } from "./chain.ts";
import { findBounds, ChainJudge, type Bounds } from "./chain-judge.ts";
import type { Finding, Link } from "./findings.ts";
import { readRetention } from "./retention-record.ts";
import { readRounds, type Round } from "./seal-rounds.ts";
import { auditStatements, type AuditStatements } from "./statements.ts";
import { judgeRest, type Rest } from "./verify-rest.ts";

export interface VerifyOptions {
  /** A head that was kept elsewhere, as `audit verify` printed it: it must still be in the chain. */
  readonly anchor?: string;
  readonly onProgress?: (progress: VerifyProgress) => void;
  /** Ends it between two seals; the report is then about what was seen. */
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
  /** Rows that were compared with their seals. */
  readonly rows: number;
  /** Rows of months that were dropped after their retention. Their seals are still in the chain. */
  readonly droppedRows: number;
  /** Rows that wait to be sealed: about these nothing can be said. */
  readonly unsealed: { readonly count: number; readonly oldest: string | null };
  /** Number and hash of the last seal. Kept elsewhere, it shows later whether the end of the chain was replaced. */
  readonly head: string | null;
  /** False when it was ended before its end. */
  readonly finished: boolean;
  /** At most 1,000 of them. */
  readonly findings: readonly Finding[];
  readonly findingCount: number;
}

const MAX_FINDINGS = 1_000;

/** Recomputes the whole chain from the rows that are there. Changes nothing. */
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
    const rest = finished ? await judgeRest(this.#database, this.#sql, { first, chains, anchor }) : undefined;
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
          "or the anchor is of another database, or of a time before the oldest seal that is kept.",
      },
    ]);
  }

  #addFindings(findings: readonly Finding[]): void {
    this.#findingCount += findings.length;
    this.#findings.push(...findings.slice(0, MAX_FINDINGS - this.#findings.length));
  }

  #report(link: Link, chains: number, finished: boolean, rest: Rest | undefined): VerifyReport {
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
