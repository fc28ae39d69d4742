import { isSagaboxError } from "../errors/index.ts";
import { encodeJson, type Json } from "../message/index.ts";
import { quoteSchema, sqlState, toArrayLiteral, type Queryable } from "../storage/index.ts";
import type { AuditEntry, AuditOutcome } from "./entry.ts";
import { auditStatements } from "./statements.ts";

/** What was so before and afterwards, where it is known only once the work is done. */
export type Details = Partial<Pick<AuditEntry, "before" | "after" | "traceId" | "target">>;

/** Writes what was decided, in the transaction of the deed itself. */
export class AuditWriter {
  readonly #sql: ReturnType<typeof auditStatements>;

  constructor(schema: string) {
    this.#sql = auditStatements(quoteSchema(schema));
  }

  /** Inside the transaction that does it: the line is there if and only if it was done. */
  async recordDone(tx: Queryable, entry: AuditEntry): Promise<void> {
    await this.#write(tx, entry, "done", null);
  }

  /** The same for many things that are done in one transaction, in one statement. */
  async recordAllDone(tx: Queryable, entries: readonly AuditEntry[]): Promise<void> {
    if (entries.length === 0) return;
    const lines = entries.map(toColumns);
    const column = (index: number): string => toArrayLiteral(lines.map((line) => line[index] ?? null));
    await tx.run(this.#sql.writeAll, [0, 1, 2, 3, 4, 5, 6, 7].map(column));
  }

  /** What was asked for and did not happen, outside the transaction that was rolled back. */
  async recordFailure(database: Queryable, entry: AuditEntry, error: unknown): Promise<void> {
    await this.#write(database, entry, isRefusal(error) ? "refused" : "failed", errorCode(error));
  }

  /**
   * Does `work`, which calls `note` inside its own transaction. When it throws, that it was tried is written all the
   * same; if even that is impossible, the reason is the one that `work` had, and that is thrown.
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

// An id that somebody made up may hold what PostgreSQL cannot store; that it was tried must be written all the same.
function storable(text: string, most: number): string {
  return Buffer.from(text.slice(0, most)).toString().replaceAll("\0", "\uFFFD");
}
