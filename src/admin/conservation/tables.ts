import type { Queryable } from "../../storage/index.ts";
import type { Breach, FindingKind } from "./findings.ts";
import type { tableStatements } from "./statements.ts";

type Sql = ReturnType<typeof tableStatements>;

/** The row after which the next page of a table starts; null at the start and at the end. */
export type Cursor = readonly [string, string] | null;

/** Dead letters of consumers. Their messages count as sent. */
export interface ConsumerDeadLetters {
  readonly open: number;
  readonly discarded: number;
}

export interface CheckedPage {
  readonly rows: number;
  /** Only for a page of dead letters. */
  readonly consumerDeadLetters?: ConsumerDeadLetters;
  readonly breaches: readonly Breach[];
  readonly next: Cursor;
}

export type CheckedTable = "outbox" | "queue" | "scheduled" | "letters" | "inbox";

export const checkedTables: readonly CheckedTable[] = ["outbox", "queue", "scheduled", "letters", "inbox"];

interface TableRow {
  readonly id: string;
  readonly lane: number | null;
  readonly seq?: string;
  readonly letter?: string;
  readonly of_consumer?: string | null;
  readonly [flag: string]: unknown;
}

/** The kind of damage that each boolean column reports. */
const flags: Readonly<Record<string, FindingKind>> = {
  orphan: "row_without_message",
  is_mismatch: "row_mismatch",
  is_stale_block: "stale_key_block",
  overlong: "lease_overlong",
  has_no_group: "delivery_without_group",
  written: "scheduled_and_written",
  lacks_row: "blocking_row_missing",
  vanished: "replay_lost",
};

const PAGE_ROWS: Readonly<Record<Exclude<CheckedTable, "inbox">, number>> = {
  outbox: 5_000,
  queue: 5_000,
  scheduled: 1_000,
  letters: 2_000,
};
const INBOX_PAGES = 512;

export interface PageRequest {
  readonly after: Cursor;
  /** Rows of older days are not checked. */
  readonly oldest: string;
  /** Quoted. */
  readonly schema: string;
}

/** Checks one page of a table. */
export function checkTablePage(
  tx: Queryable,
  sql: Sql,
  name: CheckedTable,
  wanted: PageRequest,
): Promise<CheckedPage> {
  return name === "inbox" ? checkInbox(tx, sql, wanted) : checkRows(tx, sql, name, wanted);
}

async function checkRows(
  tx: Queryable,
  sql: Sql,
  name: Exclude<CheckedTable, "inbox">,
  { after, oldest }: PageRequest,
): Promise<CheckedPage> {
  const limit = PAGE_ROWS[name];
  const params =
    name === "outbox" || name === "queue"
      ? [Number(after?.[0] ?? -1), after?.[1] ?? "0", limit, oldest]
      : [after?.[0] ?? (name === "letters" ? "0" : ""), limit];
  const { rows } = await tx.run<TableRow>(sql[name], params);
  const last = rows.at(-1);
  const count = (state: string): number => rows.filter(({ of_consumer: one }) => one === state).length;
  return {
    rows: rows.length,
    ...(name === "letters" && {
      consumerDeadLetters: { open: count("open"), discarded: count("discarded") },
    }),
    breaches: rows.flatMap(toBreaches),
    next: last === undefined || rows.length < limit ? null : toCursor(name, last),
  };
}

function toCursor(name: CheckedTable, { lane, seq, id, letter }: TableRow): Cursor {
  if (name === "outbox" || name === "queue") return [String(lane), seq ?? "0"];
  return [name === "letters" ? (letter ?? "0") : id, ""];
}

function toBreaches(row: TableRow): readonly Breach[] {
  return Object.entries(flags).flatMap(([flag, kind]) =>
    row[flag] === true ? [{ kind, lane: row.lane, id: row.id }] : [],
  );
}

async function checkInbox(tx: Queryable, sql: Sql, { after, schema }: PageRequest): Promise<CheckedPage> {
  const from = Number(after?.[0] ?? 0);
  const size = await tx.run<{ pages: number }>(sql.inboxPages, [schema]);
  const pages = size.rows[0]?.pages ?? 0;
  const { rows } = await tx.run<{ rows: number; undone: string; borrowed: string }>(sql.inbox, [
    `(${from},0)`,
    `(${from + INBOX_PAGES},0)`,
  ]);
  const parseBreaches = (kind: FindingKind, text: string | undefined): Breach[] =>
    (JSON.parse(text ?? "[]") as { id: string }[]).map(({ id }) => ({ kind, lane: null, id }));
  return {
    rows: rows[0]?.rows ?? 0,
    breaches: [
      ...parseBreaches("undo_unknown", rows[0]?.undone),
      ...parseBreaches("effect_unknown", rows[0]?.borrowed),
    ],
    next: from + INBOX_PAGES < pages ? [String(from + INBOX_PAGES), ""] : null,
  };
}

/** Checks leases (expired or too long) and sagas (failed without incident, or incident without failed saga). */
export async function checkStanding(tx: Queryable, sql: Sql): Promise<CheckedPage> {
  const found: Breach[] = [];
  for (const statement of [sql.leases, sql.sagas]) {
    const { rows } = await tx.run<{ kind: FindingKind; id: string }>(statement);
    found.push(...rows.map(({ kind, id }) => ({ kind, lane: null, id })));
  }
  return { rows: found.length, breaches: found, next: null };
}
