import { Loop, type Service } from "../runtime/index.ts";
import { explainPostgresError, quoteSchema, type Database } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { sealRound, type SealedHead, type SealedRound } from "./seal-round.ts";
import { auditStatements, type AuditStatements } from "./statements.ts";
import { AuditWriter } from "./writer.ts";

export interface SealerOptions {
  readonly database: Database;
  readonly schema: string;
  readonly observer: Observer;
  readonly sealEveryMs: number;
  /** About how many rows one seal covers. Default 5,000. */
  readonly batchSize?: number;
}

export interface SealResult {
  readonly rows: number;
  readonly seals: number;
  /** Number and hash of the last seal, to be kept elsewhere. Null while there is none. */
  readonly head: string | null;
}

const BATCH = 5_000;

/** Seals both logs in the background. Any number of processes may run one: they take turns. */
export class AuditSealer implements Service {
  readonly #options: SealerOptions;
  readonly #sql: AuditStatements;
  readonly #loop: Loop;
  #last: SealedHead | undefined;

  constructor(options: SealerOptions) {
    this.#options = options;
    this.#sql = auditStatements(quoteSchema(options.schema));
    this.#loop = new Loop({
      step: async (signal) => {
        await this.seal(signal);
        return options.sealEveryMs;
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

  /** Seals all that can be sealed now. What a running transaction wrote, or one that began after it, waits for its end. */
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

  /** Undefined when another process is sealing. */
  async #sealRound(): Promise<SealedRound | undefined> {
    const { database, schema, observer, batchSize = BATCH } = this.#options;
    const tx = await database.begin({ idleTimeoutMs: 60_000 });
    let round: SealedRound;
    try {
      const { rows } = await tx.run<{ alone: boolean }>(this.#sql.alone, [schema]);
      if (rows[0]?.alone !== true) return undefined;
      round = await sealRound(tx, this.#sql, batchSize, this.#last);
      if (round.begun !== null) await new AuditWriter(schema).recordDone(tx, newChainEntry(round.begun));
      await tx.commit();
    } finally {
      await tx.rollback();
    }
    const { rows, seals, head, begun } = round;
    if (round.replaced) this.#reportReplaced();
    this.#last = head ?? undefined;
    if (seals > 0) observer.emit("audit.sealed", { rows, seals, head: `${head?.number}:${head?.hash}` });
    if (begun !== null) observer.emit("audit.chain_begun", { chain: begun });
    return round;
  }

  // Without an anchor elsewhere nobody could tell that the end of the chain was replaced. We remember it while we run.
  #reportReplaced(): void {
    const { number, hash } = this.#last ?? { number: "", hash: "" };
    const error = `Seal ${number} with the hash ${hash} is not in the chain any more.`;
    this.#options.observer.emit("audit.broken", { kind: "seal_missing", seal: number, error });
  }

  #reportError(error: unknown): void {
    const { observer, schema } = this.#options;
    const explained = explainPostgresError(error, quoteSchema(schema));
    const told = explained instanceof Error ? explained.message : String(explained);
    observer.emit("storage.failed", { doing: "sealing the audit log", error: told, retryInMs: 1_000 });
  }
}

function newChainEntry(chain: number) {
  return {
    actor: "sagabox",
    action: "audit.chain",
    target: { kind: "chain", id: String(chain) },
    reason: "transaction ids went backwards: the database was restored from a dump",
  };
}
