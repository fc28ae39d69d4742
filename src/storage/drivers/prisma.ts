import type { Param } from "../database.ts";
import { findCause } from "./library-client.ts";
import { hasMethod, isObject } from "./library-shape.ts";
import type { Library, LibraryRows, TransactionAdapter } from "./library.ts";

/** The `tx` of Prisma's interactive transactions. `$connect?: never` rejects the client itself at compile time. */
export interface PrismaTx {
  $queryRawUnsafe: (...args: never[]) => unknown;
  $executeRawUnsafe: (...args: never[]) => unknown;
  $connect?: never;
}

interface PrismaClient<Tx> {
  $transaction(
    work: (tx: Tx) => Promise<unknown>,
    options?: {
      maxWait?: number;
      timeout?: number;
      isolationLevel?: "ReadCommitted" | "RepeatableRead" | "Serializable";
    },
  ): Promise<unknown>;
}

interface PrismaRaw {
  $queryRawUnsafe(text: string, ...params: readonly Param[]): Promise<readonly object[]>;
  $executeRawUnsafe(text: string, ...params: readonly Param[]): Promise<number>;
}

const ISOLATIONS = {
  "read committed": "ReadCommitted",
  "repeatable read": "RepeatableRead",
  serializable: "Serializable",
} as const;

export const prisma: Library = {
  name: "Prisma",
  call: "prisma.$transaction(async (tx) => …)",
  isTransaction: (value) => hasMethod(value, "$queryRawUnsafe") && !hasMethod(value, "$connect"),
  isRoot: (value) => hasMethod(value, "$queryRawUnsafe") && hasMethod(value, "$connect"),
  query: queryPrisma,
};

/** Prisma has one call for statements that return rows and another one that counts those written. */
async function queryPrisma(tx: object, text: string, params: readonly Param[]): Promise<LibraryRows> {
  const raw = tx as PrismaRaw;
  try {
    if (!returnsRows(text)) return { rows: [], rowCount: await raw.$executeRawUnsafe(text, ...params) };
    const rows = await raw.$queryRawUnsafe(text, ...params);
    return { rows: rows.map(toPlainRow), rowCount: rows.length };
  } catch (error) {
    throw explainRawFailure(error);
  }
}

/** Returns true unless the main statement writes without RETURNING. What is in parentheses belongs to other statements. */
export function returnsRows(text: string): boolean {
  let outer = text.replace(/--[^\n]*|'(?:[^']|'')*'/g, " ");
  for (let before = ""; before !== outer;) {
    before = outer;
    outer = outer.replace(/\([^()]*\)/g, " ");
  }
  return (
    !/\b(?:insert\s+into|update|delete\s+from|merge\s+into)\b/i.test(outer) || /\breturning\b/i.test(outer)
  );
}

// Prisma reads bigint columns as BigInt. The other drivers return them as text.
function toPlainRow(row: object): object {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]: [string, unknown]) => [
      name,
      typeof value === "bigint" ? String(value) : value,
    ]),
  );
}

/** A failed raw query of Prisma hides the SQLSTATE in its details. */
function explainRawFailure(error: unknown): unknown {
  const found = findCause(error, (cause) => readSqlState(cause) !== undefined);
  if (found === undefined) return error;
  const { message } = found as Error;
  return Object.assign(new Error(message, { cause: error }), { code: readSqlState(found) });
}

interface PrismaDetails {
  readonly meta?: {
    readonly code?: unknown;
    readonly driverAdapterError?: { readonly cause?: { readonly originalCode?: unknown } };
  };
}

function readSqlState(error: unknown): string | undefined {
  if (!isObject(error)) return undefined;
  const { meta } = error as PrismaDetails;
  const code = meta?.driverAdapterError?.cause?.originalCode ?? meta?.code;
  return typeof code === "string" ? code : undefined;
}

/** Lets handlers, `tx` steps and `bus.transaction()` use Prisma: `tx` is then what `prisma.$transaction` gives. */
export function prismaTransactions<Tx extends object>(client: PrismaClient<Tx>): TransactionAdapter<Tx> {
  return {
    name: prisma.name,
    query: (tx, text, params) => queryPrisma(tx, text, params),
    run: (work, { isolation, acquireMs, timeoutMs }) =>
      client.$transaction(work, {
        isolationLevel: ISOLATIONS[isolation],
        maxWait: acquireMs,
        timeout: timeoutMs,
      }),
  };
}
