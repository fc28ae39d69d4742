import { SagaboxError } from "../../errors/index.ts";
import type { TransactionOptions } from "../database.ts";

export type Isolation = NonNullable<TransactionOptions["isolation"]>;

const ISOLATIONS: readonly unknown[] = ["read committed", "repeatable read", "serializable"];

/** The level becomes part of the SQL text, so nothing but one of these may come near it. */
export function checkIsolation(isolation: unknown): void {
  if (isolation === undefined || ISOLATIONS.includes(isolation)) return;
  throw new SagaboxError("OPTIONS_INVALID", `isolation must be one of: ${ISOLATIONS.join(", ")}.`);
}

/** `mark` sets what the last statement of the transaction checks; it ends with the transaction. */
export function formatBegin(
  isolation: Isolation,
  { idleTimeoutMs, lockTimeoutMs }: TransactionOptions,
  { mark }: { readonly mark: boolean },
): string {
  let text = `begin isolation level ${isolation}`;
  if (idleTimeoutMs !== undefined) {
    text += `; set local idle_in_transaction_session_timeout = ${Math.ceil(idleTimeoutMs)}`;
  }
  if (lockTimeoutMs !== undefined) text += `; set local lock_timeout = ${Math.ceil(lockTimeoutMs)}`;
  return mark ? `${text}; set local sagabox.transaction = 'open'` : text;
}
