import {
  failureLabel,
  readDeadLetter,
  showDeadLetter,
  type DeadLetterDetail,
} from "../../dead-letter/index.ts";
import { claimHeader, parseTraceparent, sealedHeader } from "../../message/index.ts";
import { textArray } from "../../storage/index.ts";
import type { LetterAdmin } from "./letter-admin.ts";

/** Another death of the same message in the same place. */
export interface OtherLetter {
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
export interface LetterEdit {
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

export interface LetterAction {
  readonly at: string;
  readonly actor: string;
  readonly action: string;
  readonly reason: string | null;
  readonly outcome: string;
  readonly letterId: string;
}

/** A letter with its story. Personal fields are as they were stored: sealed. */
export interface LetterDetail extends DeadLetterDetail {
  readonly label: string;
  readonly traceId: string | null;
  readonly isSealed: boolean;
  readonly isClaimChecked: boolean;
  readonly others: readonly OtherLetter[];
  readonly edits: readonly LetterEdit[];
  readonly actions: readonly LetterAction[];
}

type Row = Readonly<Record<string, string | null>>;

export async function showLetter(admin: LetterAdmin, id: string): Promise<LetterDetail> {
  const { store, sql } = admin;
  const letter = await readDeadLetter(store, id);
  const { message, consumer, origin } = letter;
  const detail = await showDeadLetter(store, id);
  const { rows } = await store.database.run<Row>(sql.others, [message.id, origin, consumer]);
  const ids = textArray(rows.map((row) => row["id"] ?? ""));
  const actions = await store.database.run<Row>(sql.actions, [ids]);
  return {
    ...detail,
    label: failureLabel({ ...letter, type: message.type }),
    traceId: parseTraceparent(message.traceparent)?.traceId ?? null,
    isSealed: message.headers[sealedHeader] !== undefined,
    isClaimChecked: message.headers[claimHeader] !== undefined,
    others: rows.filter((row) => row["id"] !== id).map(otherOf),
    edits: rows.filter((row) => row["edited_at"] !== null).map(editOf),
    actions: actions.rows.map(actionOf),
  };
}

function otherOf(row: Row): OtherLetter {
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

function editOf(row: Row, index: number): LetterEdit {
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

function actionOf(row: Row): LetterAction {
  return {
    at: row["at"] ?? "",
    actor: row["actor"] ?? "",
    action: row["action"] ?? "",
    reason: row["reason"] ?? null,
    outcome: row["outcome"] ?? "",
    letterId: row["target_id"] ?? "",
  };
}
