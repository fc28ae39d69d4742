import type { Queryable } from "../storage/index.ts";
import { LAST_ID, type ChainBounds, type Seal } from "./chain.ts";
import { reportAddedRows, judgeRows, judgeSeal, type Finding, type Link } from "./findings.ts";
import { wasDropped } from "./retention-record.ts";
import { groupByLogAndMonth, type LeafRow } from "./seal-round.ts";
import type { Round } from "./seal-rounds.ts";
import type { AuditStatements } from "./statements.ts";

/** What was found of the seals of one round, and of the rows they cover. */
export interface RoundJudgement {
  /** Where the chain stands behind it. */
  readonly link: Link;
  readonly rows: number;
  readonly droppedRows: number;
  readonly findings: readonly Finding[];
}

export type Bounds = readonly [string, string, string, string];

/** Compares rounds of seals with the rows that are there. */
export class ChainJudge {
  readonly #database: Queryable;
  readonly #sql: AuditStatements;
  readonly #schema: string;
  readonly #dropped = new Set<string>();

  /** `schema` is quoted already. */
  constructor(database: Queryable, sql: AuditStatements, schema: string) {
    this.#database = database;
    this.#sql = sql;
    this.#schema = schema;
  }

  async judgeRound(before: Link, { seals, gapBehind }: Round, bounds: Bounds): Promise<RoundJudgement> {
    const findings: Finding[] = [];
    let [link, rows, droppedRows] = [before, 0, 0];
    for (const seal of seals) {
      findings.push(...judgeSeal(link, seal));
      link = seal;
    }
    const whole = !gapBehind && findings.length === 0;
    const [one] = seals;
    if (one === undefined) return { link, rows, droppedRows, findings };
    const groups = await this.#readGroups(one, bounds);
    for (const seal of seals) {
      const found = groups.get(monthKey(seal)) ?? [];
      groups.delete(monthKey(seal));
      if (found.length === 0 && (await this.#wasDropped(seal))) {
        droppedRows += seal.row_count;
        continue;
      }
      rows += found.length;
      findings.push(...judgeRows(seal, found));
    }
    // Where seals are missing, or say something else than they did, these may well be rows of theirs.
    if (whole) {
      for (const group of groups.values()) {
        const { log, month } = group[0] ?? one;
        findings.push(...reportAddedRows(log, month, one.number, group));
      }
    }
    return { link, rows, droppedRows, findings };
  }

  async #readGroups(seal: Seal, bounds: Bounds): Promise<Map<string, readonly LeafRow[]>> {
    const range = [seal.xid_from, seal.xid_to, ...bounds];
    const { rows } = await this.#database.run<LeafRow>(this.#sql.leaves, range);
    return new Map(groupByLogAndMonth(rows).map((group) => [monthKey(group[0] ?? seal), group]));
  }

  // Looked up late: the month may have been dropped while we were on our way to it. What was dropped stays so.
  async #wasDropped(seal: Seal): Promise<boolean> {
    const key = monthKey(seal);
    if (this.#dropped.has(key)) return true;
    if (!(await wasDropped(this.#database, this.#sql, this.#schema, seal))) return false;
    this.#dropped.add(key);
    return true;
  }
}

/** Pure. Which ids belong to the chain of a round: up to where the next chain begins. */
export function findBounds({ seals: [seal] }: Round, chains: readonly ChainBounds[]): Bounds {
  const next = chains.find(({ chain }) => chain === (seal?.chain ?? 0) + 1);
  return [
    seal?.saga_after ?? "0",
    next?.saga_after ?? LAST_ID,
    seal?.action_after ?? "0",
    next?.action_after ?? LAST_ID,
  ];
}

function monthKey({ log, month }: { readonly log: string; readonly month: string }): string {
  return `${log} ${month}`;
}
