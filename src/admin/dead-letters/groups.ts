import {
  toConditions,
  failureLabel,
  filterKeys,
  computeFingerprint,
  type DeadLetterCriteria,
} from "../../dead-letter/index.ts";
import { rejectUnknownKeys, wholeNumber } from "../../options/index.ts";
import { toArrayLiteral } from "../../storage/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

/** Open letters of one cause. */
export interface DeadLetterGroup {
  readonly fingerprint: string;
  /** For people: who fails, with what, and how. */
  readonly label: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly type: string;
  readonly topic: string;
  readonly reason: Reason;
  readonly errorType: string;
  /** Of the newest letter. */
  readonly errorMessage: string;
  readonly sampleId: string;
  readonly sampleMessageId: string;
  readonly open: number;
  readonly firstAt: string;
  readonly lastAt: string;
  /** Letters of the same cause that are closed and not forgotten yet. */
  readonly replayed: number;
  readonly discarded: number;
}

export interface DeadLetterGroups {
  /** Open letters in all groups, also those that are not listed. */
  readonly open: number;
  /** How many groups there are. */
  readonly count: number;
  /** Largest first. */
  readonly groups: readonly DeadLetterGroup[];
}

export type GroupFilter = Omit<DeadLetterCriteria, "open"> & {
  /** At most this many groups; up to 1,000. Default 50. */
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

/** Gives a fingerprint to open letters that a version without them has buried. */
export async function addFingerprints({ store, sql }: DeadLetterAdmin): Promise<number> {
  let named = 0;
  for (;;) {
    const { rows } = await store.database.run<GroupRow & { id: string }>(sql.unnamed, [PAGE]);
    if (rows.length === 0) return named;
    const fingerprints = rows.map((row) =>
      computeFingerprint({ ...row, errorType: row.error_type, errorMessage: row.error_message }),
    );
    const ids = toArrayLiteral(rows.map((row) => row.id));
    const { rowCount } = await store.database.run(sql.name, [ids, toArrayLiteral(fingerprints)]);
    named += rowCount;
    if (rows.length < PAGE || rowCount === 0) return named;
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
