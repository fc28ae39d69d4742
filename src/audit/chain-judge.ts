import type { Queryable } from "../storage/index.ts";
import { type ChainBounds, LAST_ID, type Seal } from "./chain.ts";
import { type Finding, judgeRows, judgeSeal, type Link, reportAddedRows } from "./findings.ts";
import { wasDropped } from "./retention.ts";
import { groupByLogAndMonth, type LeafRow } from "./sealer.ts";
import type { AuditStatements } from "./statements.ts";

/** Result of comparing the seals of one round with the rows they cover. */
export interface RoundJudgement {
  /** Last seal of the round. */
  readonly link: Link;
  readonly rows: number;
  readonly droppedRows: number;
  readonly findings: readonly Finding[];
}

export type Bounds = readonly [string, string, string, string];

/** Compares rounds of seals with the stored rows. */
export class ChainJudge {
  readonly #database: Queryable;
  readonly #sql: AuditStatements;
  readonly #schema: string;
  readonly #dropped = new Set<string>();

  /** `schema` must be quoted already. */
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
    // If seals are missing or were changed, the remaining rows may belong to them, so they are not reported as added.
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

  // Read late, because the month may be dropped during the verification. A dropped month never comes back, so it is cached.
  async #wasDropped(seal: Seal): Promise<boolean> {
    const key = monthKey(seal);
    if (this.#dropped.has(key)) return true;
    if (!(await wasDropped(this.#database, this.#sql, this.#schema, seal))) return false;
    this.#dropped.add(key);
    return true;
  }
}

/** Returns the id ranges of a round's chain: from its own start to the start of the next chain. Pure. */
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

/** Seals written together, for one range of transactions. */
export interface Round {
  readonly seals: readonly Seal[];
  /** True if the next stored seal does not have the next number. */
  readonly gapBehind: boolean;
}

const PAGE = 20;

/** Reads the seals after `behind` in order, grouped by round. Holds at most one page of seals in memory. */
export async function* readRounds(
  database: Queryable,
  sql: AuditStatements,
  behind = "0",
): AsyncGenerator<Round> {
  let open: Seal[] = [];
  for await (const seal of readSeals(database, sql, behind)) {
    const last = open.at(-1);
    if (last !== undefined && !isSameRange(last, seal)) {
      yield { seals: open, gapBehind: BigInt(seal.number) !== BigInt(last.number) + 1n };
      open = [];
    }
    open.push(seal);
  }
  if (open.length > 0) yield { seals: open, gapBehind: false };
}

async function* readSeals(database: Queryable, sql: AuditStatements, behind: string): AsyncGenerator<Seal> {
  for (let after = behind; ;) {
    const { rows } = await database.run<Seal>(sql.seals, [after, PAGE]);
    yield* rows;
    const last = rows.at(-1);
    if (last === undefined || rows.length < PAGE) return;
    after = last.number;
  }
}

/** Returns true if two seals belong to the same round. Pure. */
export function isSameRange(one: Seal, other: Seal): boolean {
  return one.chain === other.chain && one.xid_from === other.xid_from && one.xid_to === other.xid_to;
}
