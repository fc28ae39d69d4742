import { isSagaboxError } from "../errors/index.ts";
import { encodeJson, type Json } from "../message/index.ts";
import { quoteSchema, sqlState, toArrayLiteral, type Queryable } from "../storage/index.ts";
import type { AuditEntry, AuditOutcome } from "./entry.ts";
import { auditStatements } from "./statements.ts";

/** Parts of an entry that are known only after the action. */
export type Details = Partial<Pick<AuditEntry, "before" | "after" | "traceId" | "target">>;

/** Writes entries of the action log, in the transaction of the action. */
export class AuditWriter {
  readonly #sql: ReturnType<typeof auditStatements>;

  constructor(schema: string) {
    this.#sql = auditStatements(quoteSchema(schema));
  }

  /** Records an action in its own transaction, so that the entry exists if and only if the action committed. */
  async recordDone(tx: Queryable, entry: AuditEntry): Promise<void> {
    await this.#write(tx, entry, "done", null);
  }

  /** Records many actions of one transaction with one statement. */
  async recordAllDone(tx: Queryable, entries: readonly AuditEntry[]): Promise<void> {
    if (entries.length === 0) return;
    const lines = entries.map(toColumns);
    const column = (index: number): string => toArrayLiteral(lines.map((line) => line[index] ?? null));
    await tx.run(this.#sql.writeAll, [0, 1, 2, 3, 4, 5, 6, 7].map(column));
  }

  /** Records a refused or failed action, outside the transaction that was rolled back. */
  async recordFailure(database: Queryable, entry: AuditEntry, error: unknown): Promise<void> {
    await this.#write(database, entry, isRefusal(error) ? "refused" : "failed", errorCode(error));
  }

  /**
   * Runs `work`, which must call `note` inside its transaction. If `work` throws, the attempt is recorded as well, and
   * the error is thrown, also if the attempt could not be recorded.
   */
  async runAudited<T>(
    database: Queryable,
    entry: AuditEntry,
    work: (note: (tx: Queryable, details?: Details) => Promise<void>) => Promise<T>,
  ): Promise<T> {
    try {
      return await work((tx, details = {}) => this.recordDone(tx, { ...entry, ...details }));
    } catch (error) {
      await this.recordFailure(database, entry, error).catch(() => undefined);
      throw error;
    }
  }

  async #write(tx: Queryable, entry: AuditEntry, outcome: AuditOutcome, code: string | null): Promise<void> {
    await tx.run(this.#sql.write, [...toColumns(entry), outcome, code]);
  }
}

function toColumns({ actor, action, target, reason, traceId, before, after }: AuditEntry): (string | null)[] {
  return [
    storable(actor, 255),
    action,
    target.kind,
    target.id === undefined || target.id === null ? null : storable(target.id, 500),
    reason === undefined || reason === null ? null : storable(reason, 1_000),
    traceId ?? null,
    jsonText(before),
    jsonText(after),
  ];
}

function isRefusal(error: unknown): boolean {
  return isSagaboxError(error) && !/^(STORAGE|TRANSACTION|COMMIT)_/.test(error.code);
}

function errorCode(error: unknown): string {
  if (isSagaboxError(error)) return error.code;
  return sqlState(error) ?? (error instanceof Error ? error.name : "unknown");
}

function jsonText(value: Json | undefined): string | null {
  return value === undefined ? null : encodeJson(value);
}

// An invalid id from a caller may contain characters that PostgreSQL cannot store; the attempt must still be recorded.
function storable(text: string, maxLength: number): string {
  return Buffer.from(text.slice(0, maxLength)).toString().replaceAll("\0", "\uFFFD");
}
