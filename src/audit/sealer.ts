import { errorText } from "../errors/index.ts";
import { type FailedRound, PeriodicService } from "../runtime/index.ts";
import { type Database, explainPostgresError, type OwnedTransaction, quoteSchema } from "../storage/index.ts";
import { silentObserver, type Observer } from "../telemetry/index.ts";
import {
  type ChainBounds,
  encodeLeaves,
  LAST_ID,
  LAST_XID,
  laterId,
  type Leaf,
  NO_HASH,
  type Seal,
  sealHash,
} from "./chain.ts";
import { auditStatements, type AuditStatements, type LogName } from "./statements.ts";
import { AuditWriter } from "./writer.ts";

export interface SealerOptions {
  readonly database: Database;
  readonly schema: string;
  readonly observer: Observer;
  readonly sealEveryMs: number;
  /** Approximate number of rows per round. Default 5,000. */
  readonly batchSize?: number;
}

export interface SealResult {
  readonly rows: number;
  readonly seals: number;
  /** The last seal as "number:hash", to be stored outside the database. Null if no seal exists or another process seals. */
  readonly head: string | null;
}

const DEFAULT_BATCH_SIZE = 5_000;

/** Seals both logs in the background. Several processes may run one; only one of them seals at a time. */
export class AuditSealer extends PeriodicService {
  readonly #options: SealerOptions;
  readonly #sql: AuditStatements;
  /** The end of the chain after the last round of this process. */
  #last: SealedHead | undefined;

  constructor(options: SealerOptions) {
    super({ everyMs: options.sealEveryMs });
    this.#options = options;
    this.#sql = auditStatements(quoteSchema(options.schema));
  }

  /** Seals all rows of transactions older than the oldest running one. Newer rows are sealed later. */
  async seal(signal?: AbortSignal): Promise<SealResult> {
    let [rows, seals, head]: [number, number, string | null] = [0, 0, null];
    for (;;) {
      const round = await this.#sealRound();
      if (round === undefined) return { rows, seals, head };
      rows += round.rows;
      seals += round.seals;
      head = round.head === null ? null : `${round.head.number}:${round.head.hash}`;
      if (!round.more || signal?.aborted === true) return { rows, seals, head };
    }
  }

  protected override async runRound(signal: AbortSignal): Promise<void> {
    await this.seal(signal);
  }

  // Returns undefined if another process is sealing.
  async #sealRound(): Promise<SealedRound | undefined> {
    const { database, schema, observer, batchSize = DEFAULT_BATCH_SIZE } = this.#options;
    const tx = await database.begin({ idleTimeoutMs: 60_000 });
    let round: SealedRound;
    try {
      const { rows } = await tx.run<{ alone: boolean }>(this.#sql.alone, [schema]);
      if (rows[0]?.alone !== true) return undefined;
      round = await sealRound(tx, this.#sql, batchSize, this.#last);
      if (round.newChain !== null)
        await new AuditWriter(schema).recordDone(tx, newChainEntry(round.newChain));
      await tx.commit();
    } finally {
      await tx.rollback();
    }
    const { rows, seals, head, newChain } = round;
    if (round.replaced) this.#reportReplaced();
    this.#last = head ?? undefined;
    if (seals > 0) observer.emit("audit.sealed", { rows, seals, head: `${head?.number}:${head?.hash}` });
    if (newChain !== null) observer.emit("audit.chain_begun", { chain: newChain });
    return round;
  }

  // Detecting that the end of the chain was replaced needs a copy of its hash, so this process keeps the last one it saw.
  #reportReplaced(): void {
    const { number, hash } = this.#last ?? { number: "", hash: "" };
    const error = `Seal ${number} with hash ${hash} is no longer in the chain.`;
    this.#options.observer.emit("audit.broken", { kind: "seal_missing", seal: number, error });
  }

  protected override onFailure({ error, retryInMs }: FailedRound): void {
    const { observer, schema } = this.#options;
    const explained = explainPostgresError(error, quoteSchema(schema));
    observer.emit("storage.failed", {
      doing: "sealing the audit log",
      error: errorText(explained),
      retryInMs,
    });
  }
}

/**
 * Seals the audit logs now, without waiting for a worker. Entries of transactions that are newer than the oldest running one
 * are sealed later.
 */
export function sealAudit(database: Database, schema: string): Promise<SealResult> {
  return new AuditSealer({ database, schema, observer: silentObserver, sealEveryMs: 60_000 }).seal();
}

function newChainEntry(chain: number) {
  return {
    actor: "sagabox",
    action: "audit.chain",
    target: { kind: "chain", id: String(chain) },
    reason: "transaction ids went backwards: the database was restored from a dump",
  };
}

/** End of the chain, where the next seal is added. */
interface Head extends ChainBounds {
  readonly number: string;
  readonly hash: string;
  /** The first transaction id that is not sealed. */
  readonly xid_to: string;
  /** Highest sealed row id of the saga log. */
  readonly saga_top: string;
  /** Highest sealed row id of the action log. */
  readonly action_top: string;
}

interface HeadRow extends Omit<Head, "number"> {
  readonly number: string | null;
  /** Id of the oldest running transaction. */
  readonly horizon: string;
  readonly now: string;
  /** Hash that the database now holds for the last seal this process saw; null if the seal is missing. */
  readonly known: string | null;
}

export interface LeafRow extends Leaf {
  readonly log: LogName;
  readonly month: string;
}

/** Result of one round. */
export interface SealedRound {
  readonly rows: number;
  readonly seals: number;
  /** True if more rows may be ready to be sealed. */
  readonly more: boolean;
  /** Number of a chain that was started because transaction ids went backwards; null in the normal case. */
  readonly newChain: number | null;
  readonly head: SealedHead | null;
  /** True if the last seal this process saw is missing or has another hash. */
  readonly replaced: boolean;
}

export interface SealedHead {
  readonly number: string;
  readonly hash: string;
}

const EMPTY_HEAD: Head = {
  number: "0",
  chain: 1,
  hash: NO_HASH,
  xid_to: "0",
  saga_after: "0",
  action_after: "0",
  saga_top: "0",
  action_top: "0",
};

/**
 * Seals one range of transactions, in the caller's transaction and under its lock. Rows of transactions older than every
 * running transaction are final, so no row can appear later in a range that is already sealed.
 */
export async function sealRound(
  tx: OwnedTransaction,
  sql: AuditStatements,
  batchSize: number,
  last?: SealedHead,
): Promise<SealedRound> {
  const [row] = (await tx.run<HeadRow>(sql.head, [last?.number ?? null])).rows;
  if (row === undefined) throw new Error("The head of the audit chain could not be read.");
  const head: Head = row.number === null ? EMPTY_HEAD : { ...row, number: row.number };
  const { horizon, now } = row;
  const replaced = last !== undefined && row.known !== last.hash;
  const before = { head, rows: 0, seals: 0 };
  if (BigInt(head.xid_to) <= BigInt(horizon)) {
    const to = await findRangeEnd(tx, sql, head, horizon, batchSize);
    const done = await sealRange(tx, sql, before, { from: head.xid_to, to, now });
    return { ...summarizeProgress(done), more: to !== horizon, newChain: null, replaced };
  }
  // The database was restored from a dump into a server with lower transaction ids. Rows of the old server have ids that
  // no transaction here can have, so they are final. They are the last rows of the old chain; a new chain begins at id 0.
  const closed =
    head.xid_to === LAST_XID
      ? before
      : await sealRange(tx, sql, before, { from: head.xid_to, to: LAST_XID, now });
  const { saga_top, action_top } = closed.head;
  const chain = head.chain + 1;
  const newHead = { ...closed.head, chain, saga_after: saga_top, action_after: action_top, xid_to: "0" };
  const to = await findRangeEnd(tx, sql, newHead, horizon, batchSize);
  const done = await sealRange(tx, sql, { ...closed, head: newHead }, { from: "0", to, now });
  // Without rows there is no seal to begin the new chain with. The next round tries again.
  if (done.seals === closed.seals)
    return { ...summarizeProgress(closed), more: false, newChain: null, replaced };
  return { ...summarizeProgress(done), more: to !== horizon, newChain: chain, replaced };
}

interface Progress {
  readonly head: Head;
  readonly rows: number;
  readonly seals: number;
}

function summarizeProgress({ head, rows, seals }: Progress): Pick<SealedRound, "rows" | "seals" | "head"> {
  return { rows, seals, head: head.number === "0" ? null : { number: head.number, hash: head.hash } };
}

interface WaitingRows {
  readonly count: number;
  readonly first: string | null;
  readonly last: string | null;
}

/**
 * Returns the transaction id that ends a range of about `batchSize` rows, exclusive. The rows of one transaction stay
 * together, so a range may be larger if one transaction wrote more rows.
 */
async function findRangeEnd(
  tx: OwnedTransaction,
  sql: AuditStatements,
  { xid_to: from, saga_after, action_after }: Head,
  horizon: string,
  batchSize: number,
): Promise<string> {
  const params = [from, horizon, saga_after, action_after, batchSize + 1];
  const [waiting] = (await tx.run<WaitingRows>(sql.waiting, params)).rows;
  if (waiting === undefined || waiting.count <= batchSize || waiting.last === null) return horizon;
  const to = waiting.last === waiting.first ? (BigInt(waiting.last) + 1n).toString() : waiting.last;
  if (BigInt(to) <= BigInt(from)) throw new Error(`A seal from transaction ${from} cannot reach to ${to}.`);
  return to;
}

/** Writes one seal for each log and month that has rows in the range. */
async function sealRange(
  tx: OwnedTransaction,
  sql: AuditStatements,
  progress: Progress,
  { from, to, now }: { readonly from: string; readonly to: string; readonly now: string },
): Promise<Progress> {
  const { saga_after, action_after } = progress.head;
  const params = [from, to, saga_after, LAST_ID, action_after, LAST_ID];
  const { rows } = await tx.run<LeafRow>(sql.leaves, params);
  let { head, seals } = progress;
  for (const leaves of groupByLogAndMonth(rows)) {
    head = await writeSeal(tx, sql, head, leaves, { from, to, now });
    seals += 1;
  }
  return { head, seals, rows: progress.rows + rows.length };
}

/** Groups rows, which must be sorted by log and month. */
export function groupByLogAndMonth(rows: readonly LeafRow[]): readonly (readonly LeafRow[])[] {
  const groups: LeafRow[][] = [];
  for (const row of rows) {
    const last = groups.at(-1);
    if (last?.[0]?.log === row.log && last[0].month === row.month) last.push(row);
    else groups.push([row]);
  }
  return groups;
}

async function writeSeal(
  tx: OwnedTransaction,
  sql: AuditStatements,
  head: Head,
  rows: readonly LeafRow[],
  { from, to, now }: { readonly from: string; readonly to: string; readonly now: string },
): Promise<Head> {
  const { log, month } = rows[0] ?? { log: "saga", month: "" };
  const top = rows.reduce(
    (highest, { id }) => laterId(highest, id),
    log === "saga" ? head.saga_top : head.action_top,
  );
  const seal: Omit<Seal, "hash"> = {
    number: (BigInt(head.number) + 1n).toString(),
    chain: head.chain,
    log,
    month,
    xid_from: from,
    xid_to: to,
    saga_after: head.saga_after,
    action_after: head.action_after,
    saga_top: log === "saga" ? top : head.saga_top,
    action_top: log === "action" ? top : head.action_top,
    row_count: rows.length,
    leaves: encodeLeaves(rows),
    previous_hash: head.hash,
    sealed_at: now,
  };
  const hash = sealHash(seal);
  const { number, chain, saga_after, action_after, saga_top, action_top } = seal;
  const bounds = [saga_after, action_after, saga_top, action_top];
  const content = [seal.row_count, seal.leaves, hash, seal.previous_hash, now];
  await tx.run(sql.seal, [number, chain, log, month, from, to, ...bounds, ...content]);
  return { number, chain, hash, xid_to: to, saga_after, action_after, saga_top, action_top };
}
