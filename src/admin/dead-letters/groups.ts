import {
  conditionsOf,
  failureLabel,
  filterKeys,
  fingerprintOf,
  type LetterFilter,
} from "../../dead-letter/index.ts";
import { rejectUnknownKeys, wholeNumber } from "../../options/index.ts";
import { textArray } from "../../storage/index.ts";
import type { LetterAdmin } from "./letter-admin.ts";

/** Open letters of one cause. */
export interface LetterGroup {
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

export interface LetterGroups {
  /** Open letters in all groups, also those that are not listed. */
  readonly open: number;
  /** How many groups there are. */
  readonly count: number;
  /** Largest first. */
  readonly groups: readonly LetterGroup[];
}

export type GroupFilter = Omit<LetterFilter, "open"> & {
  /** At most this many groups; up to 1,000. Default 50. */
  readonly limit?: number;
  readonly offset?: number;
};

type Reason = Parameters<typeof fingerprintOf>[0]["reason"];

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

export async function letterGroups(admin: LetterAdmin, filter: GroupFilter = {}): Promise<LetterGroups> {
  const keys = filterKeys.filter((key) => key !== "open");
  rejectUnknownKeys("deadLetters.groups", filter, ["limit", "offset", ...keys]);
  const { limit = 50, offset = 0, ...rest } = filter;
  wholeNumber("deadLetters.groups: limit", limit, { min: 1, max: 1_000 });
  wholeNumber("deadLetters.groups: offset", offset, { min: 0, max: 1_000_000 });
  const { names, params } = conditionsOf("deadLetters.groups", rest);
  await nameLetters(admin);
  const { rows } = await admin.store.database.run<GroupRow>(admin.sql.groups(names), [
    limit,
    offset,
    ...params,
  ]);
  return { open: rows[0]?.total ?? 0, count: rows[0]?.groups ?? 0, groups: rows.map(groupOf) };
}

const PAGE = 500;

/** Gives a fingerprint to open letters that a version without them has buried. */
export async function nameLetters({ store, sql }: LetterAdmin): Promise<number> {
  let named = 0;
  for (;;) {
    const { rows } = await store.database.run<GroupRow & { id: string }>(sql.unnamed, [PAGE]);
    if (rows.length === 0) return named;
    const fingerprints = rows.map((row) =>
      fingerprintOf({ ...row, errorType: row.error_type, errorMessage: row.error_message }),
    );
    const ids = textArray(rows.map((row) => row.id));
    const { rowCount } = await store.database.run(sql.name, [ids, textArray(fingerprints)]);
    named += rowCount;
    if (rows.length < PAGE || rowCount === 0) return named;
  }
}

function groupOf(row: GroupRow): LetterGroup {
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
