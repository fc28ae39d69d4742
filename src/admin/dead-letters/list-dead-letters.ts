import {
  computeFingerprint,
  type DeadLetterCriteria,
  type DeadLetterDetail,
  failureLabel,
  filterKeys,
  readDeadLetter,
  showDeadLetter,
  toConditions,
} from "../../dead-letter/index.ts";
import { claimHeader, encryptedHeader, parseTraceparent } from "../../message/index.ts";
import { rejectUnknownKeys, wholeNumber } from "../../options/index.ts";
import { toArrayLiteral } from "../../storage/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

/** The open dead letters of one cause. */
export interface DeadLetterGroup {
  readonly fingerprint: string;
  /** Readable label: consumer, message type and error. */
  readonly label: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly type: string;
  readonly topic: string;
  readonly reason: Reason;
  readonly errorType: string;
  /** Error of the newest dead letter. */
  readonly errorMessage: string;
  readonly sampleId: string;
  readonly sampleMessageId: string;
  readonly open: number;
  readonly firstAt: string;
  readonly lastAt: string;
  /** Number of stored dead letters of this cause that were replayed, and that were discarded. */
  readonly replayed: number;
  readonly discarded: number;
}

export interface DeadLetterGroups {
  /** Number of open dead letters in all groups, also in those that are not listed. */
  readonly open: number;
  /** Number of all groups. */
  readonly count: number;
  /** Largest first. */
  readonly groups: readonly DeadLetterGroup[];
}

export type GroupFilter = Omit<DeadLetterCriteria, "open"> & {
  /** Upper bound for the listed groups, 1 to 1,000. Default 50. */
  readonly limit?: number;
  readonly offset?: number;
};

type Reason = Parameters<typeof computeFingerprint>[0]["reason"];

interface GroupRow {
  readonly fingerprint: string;
  readonly open: number;
  readonly first_at: string;
  readonly last_at: string;
  readonly sample: string;
  readonly message_id: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly type: string;
  readonly topic: string;
  readonly reason: Reason;
  readonly error_type: string;
  readonly error_message: string;
  readonly replayed: number;
  readonly discarded: number;
  readonly groups: number;
  readonly total: number;
}

/** Groups the open dead letters by cause. Throws OPTIONS_INVALID for an invalid filter. */
export async function listDeadLetterGroups(
  admin: DeadLetterAdmin,
  filter: GroupFilter = {},
): Promise<DeadLetterGroups> {
  const keys = filterKeys.filter((key) => key !== "open");
  rejectUnknownKeys("deadLetters.groups", filter, ["limit", "offset", ...keys]);
  const { limit = 50, offset = 0, ...rest } = filter;
  wholeNumber("deadLetters.groups: limit", limit, { min: 1, max: 1_000 });
  wholeNumber("deadLetters.groups: offset", offset, { min: 0, max: 1_000_000 });
  const { names, params } = toConditions("deadLetters.groups", rest);
  await addFingerprints(admin);
  const { rows } = await admin.store.database.run<GroupRow>(admin.sql.groups(names), [
    limit,
    offset,
    ...params,
  ]);
  return { open: rows[0]?.total ?? 0, count: rows[0]?.groups ?? 0, groups: rows.map(toGroup) };
}

const PAGE = 500;

/** Adds fingerprints to open dead letters without one (those buried by an older version). Resolves with their number. */
async function addFingerprints({ store, sql }: DeadLetterAdmin): Promise<number> {
  let count = 0;
  for (;;) {
    const { rows } = await store.database.run<GroupRow & { id: string }>(sql.ungrouped, [PAGE]);
    if (rows.length === 0) return count;
    const fingerprints = rows.map((row) =>
      computeFingerprint({ ...row, errorType: row.error_type, errorMessage: row.error_message }),
    );
    const ids = toArrayLiteral(rows.map((row) => row.id));
    const { rowCount } = await store.database.run(sql.setFingerprints, [ids, toArrayLiteral(fingerprints)]);
    count += rowCount;
    if (rows.length < PAGE || rowCount === 0) return count;
  }
}

function toGroup(row: GroupRow): DeadLetterGroup {
  const { fingerprint, origin, consumer, type, topic, reason, open, replayed, discarded } = row;
  const errors = { errorType: row.error_type, errorMessage: row.error_message };
  return {
    fingerprint,
    label: failureLabel({ consumer, type, reason, ...errors }),
    origin,
    consumer,
    type,
    topic,
    reason,
    ...errors,
    sampleId: row.sample,
    sampleMessageId: row.message_id,
    open,
    firstAt: row.first_at,
    lastAt: row.last_at,
    replayed,
    discarded,
  };
}

/** Another dead letter of the same message with the same origin and consumer. */
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

/** A replay with new data. The dead letter has the data before; the next dead letter, or the archive, the data after. */
export interface DeadLetterEdit {
  readonly deadLetterId: string;
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
  readonly deadLetterId: string;
}

/** A dead letter with its history. Personal fields are encrypted, as stored. */
export interface DeadLetterView extends DeadLetterDetail {
  readonly label: string;
  readonly traceId: string | null;
  readonly isEncrypted: boolean;
  readonly isClaimChecked: boolean;
  readonly others: readonly RelatedDeadLetter[];
  readonly edits: readonly DeadLetterEdit[];
  readonly actions: readonly DeadLetterAction[];
}

type Row = Readonly<Record<string, string | null>>;

/** Reads a dead letter with its edits, operator actions, and other dead letters of the message. Throws DEAD_LETTER_NOT_FOUND. */
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
    isEncrypted: message.headers[encryptedHeader] !== undefined,
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
    deadLetterId: row["id"] ?? "",
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
    deadLetterId: row["target_id"] ?? "",
  };
}
