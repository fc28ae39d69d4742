import {
  failureLabel,
  readDeadLetter,
  showDeadLetter,
  type DeadLetterDetail,
} from "../../dead-letter/index.ts";
import { claimHeader, parseTraceparent, encryptedHeader } from "../../message/index.ts";
import { toArrayLiteral } from "../../storage/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

/** Another death of the same message in the same place. */
export interface RelatedDeadLetter {
  readonly id: string;
  readonly reason: string;
  readonly errorType: string;
  readonly errorMessage: string;
  readonly failedAt: string;
  readonly closedAt: string | null;
  readonly closedAs: string | null;
  readonly fingerprint: string | null;
}

/** The message was replayed with other data. The letter has what was before, the next one or the archive what came. */
export interface DeadLetterEdit {
  readonly letterId: string;
  /** 1 for the first edit of the message. */
  readonly version: number;
  readonly at: string;
  readonly actor: string;
  readonly reason: string;
  readonly beforeHash: string;
  readonly afterHash: string;
  readonly contract: string | null;
}

export interface DeadLetterAction {
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly reason: string | null;
  readonly outcome: string;
  readonly letterId: string;
}

/** A letter with its story. Personal fields are as they were stored: sealed. */
export interface DeadLetterView extends DeadLetterDetail {
  readonly label: string;
  readonly traceId: string | null;
  readonly isSealed: boolean;
  readonly isClaimChecked: boolean;
  readonly others: readonly RelatedDeadLetter[];
  readonly edits: readonly DeadLetterEdit[];
  readonly actions: readonly DeadLetterAction[];
}

type Row = Readonly<Record<string, string | null>>;

export async function viewDeadLetter(admin: DeadLetterAdmin, id: string): Promise<DeadLetterView> {
  const { store, sql } = admin;
  const letter = await readDeadLetter(store, id);
  const { message, consumer, origin } = letter;
  const detail = await showDeadLetter(store, id);
  const { rows } = await store.database.run<Row>(sql.others, [message.id, origin, consumer]);
  const ids = toArrayLiteral(rows.map((row) => row["id"] ?? ""));
  const actions = await store.database.run<Row>(sql.actions, [ids]);
  return {
    ...detail,
    label: failureLabel({ ...letter, type: message.type }),
    traceId: parseTraceparent(message.traceparent)?.traceId ?? null,
    isSealed: message.headers[encryptedHeader] !== undefined,
    isClaimChecked: message.headers[claimHeader] !== undefined,
    others: rows.filter((row) => row["id"] !== id).map(toRelated),
    edits: rows.filter((row) => row["edited_at"] !== null).map(toEdit),
    actions: actions.rows.map(toAction),
  };
}

function toRelated(row: Row): RelatedDeadLetter {
  return {
    id: row["id"] ?? "",
    reason: row["reason"] ?? "",
    errorType: row["error_type"] ?? "",
    errorMessage: row["error_message"] ?? "",
    failedAt: row["failed_at"] ?? "",
    closedAt: row["closed_at"] ?? null,
    closedAs: row["closed_as"] ?? null,
    fingerprint: row["fingerprint"] ?? null,
  };
}

function toEdit(row: Row, index: number): DeadLetterEdit {
  return {
    letterId: row["id"] ?? "",
    version: index + 1,
    at: row["edited_at"] ?? "",
    actor: row["actor"] ?? "",
    reason: row["why"] ?? "",
    beforeHash: row["before_hash"] ?? "",
    afterHash: row["after_hash"] ?? "",
    contract: row["contract"] ?? null,
  };
}

function toAction(row: Row): DeadLetterAction {
  return {
    at: row["at"] ?? "",
    actor: row["actor"] ?? "",
    action: row["action"] ?? "",
    reason: row["reason"] ?? null,
    outcome: row["outcome"] ?? "",
    letterId: row["target_id"] ?? "",
  };
}
