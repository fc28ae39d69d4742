import { type Queryable, toArrayLiteral } from "../../storage/index.ts";
import type { Breach } from "./findings.ts";
import type { messageStatements } from "./message-statements.ts";

/** A range of pages of one day. */
export interface Window {
  readonly day: string;
  readonly fromPage: number;
  readonly toPage: number;
  /** The highest seq of the previous window, so that messages missing between the two are found as well. */
  readonly after: string | null;
  /** Day of the previous window. */
  readonly afterDay: string | null;
}

export interface LaneAccount {
  readonly lane: number;
  readonly written: number;
  readonly sent: number;
  readonly waiting: number;
  readonly dead: number;
  readonly discarded: number;
  /** Messages that can no longer be judged, because the evidence was dropped with its day. */
  readonly unjudged: number;
  readonly lost: number;
}

export const noAccount: Omit<LaneAccount, "lane"> = {
  written: 0,
  sent: 0,
  waiting: 0,
  dead: 0,
  discarded: 0,
  unjudged: 0,
  lost: 0,
};

export interface CheckedWindow {
  readonly messages: number;
  readonly high: string | null;
  readonly lanes: readonly LaneAccount[];
  readonly breaches: readonly Breach[];
  /** False if the window had too many suspects to judge all of them. */
  readonly whole: boolean;
}

interface WindowRow {
  readonly messages: number;
  readonly high: string | null;
  readonly lanes: string;
  readonly suspects: string;
  readonly suspected: number;
  readonly strangers: string;
}

interface RowKey {
  readonly lane: number;
  readonly seq: string;
}

type Sql = ReturnType<typeof messageStatements>;

/** Pages before and after a window that are searched for a message that its receipts name. */
const PAGES_AROUND = 2_048;

/** Counts the messages of a window and judges its suspects, in the snapshot of the caller's transaction. */
export async function checkWindow(tx: Queryable, sql: Sql, window: Window): Promise<CheckedWindow> {
  const { day, fromPage, toPage, after } = window;
  const { rows } = await tx.run<WindowRow>(sql.window, [day, tid(fromPage), tid(toPage), after]);
  const [row] = rows;
  if (row === undefined) return { messages: 0, high: after, lanes: [], breaches: [], whole: true };
  const suspects = JSON.parse(row.suspects) as Suspect[];
  const traces = await readTraces(tx, sql, day, suspects.filter(needsTrace));
  const judged = suspects.map((suspect) => ({ suspect, ...judge(suspect, traces.get(suspect.id)) }));
  const unarchived = await findUnarchived(tx, sql, window, JSON.parse(row.strangers) as RowKey[]);
  return {
    messages: row.messages,
    high: row.high ?? after,
    lanes: addJudged(JSON.parse(row.lanes) as LaneAccount[], judged),
    breaches: [...judged.flatMap(({ breaches }) => breaches), ...unarchived],
    whole: row.suspected === suspects.length,
  };
}

async function readTraces(
  tx: Queryable,
  sql: Sql,
  day: string,
  asked: readonly Suspect[],
): Promise<ReadonlyMap<string, Trace>> {
  if (asked.length === 0) return new Map();
  const { rows } = await tx.run<Trace>(sql.traces, [
    toArrayLiteral(asked.map(({ id }) => id)),
    toArrayLiteral(asked.map(({ lane }) => lane)),
    toArrayLiteral(asked.map(({ seq }) => seq)),
    day,
  ]);
  return new Map(rows.map((trace) => [trace.id, trace]));
}

async function findUnarchived(
  tx: Queryable,
  sql: Sql,
  { day, fromPage, toPage, afterDay }: Window,
  strangers: readonly RowKey[],
): Promise<readonly Breach[]> {
  const near = [day, tid(Math.max(0, fromPage - PAGES_AROUND)), tid(toPage + PAGES_AROUND)];
  const further = await excludePresent(strangers, (params) =>
    tx.run<RowKey>(sql.presentNear, [...params, ...near]),
  );
  const gone = await excludePresent(further, (params) =>
    tx.run<RowKey>(sql.presentAnywhere, [...params, afterDay ?? day]),
  );
  return gone.map(({ lane, seq }) => ({ kind: "message_unarchived", lane, id: `${lane}/${seq}` }));
}

async function excludePresent(
  places: readonly RowKey[],
  find: (params: string[]) => Promise<{ readonly rows: readonly RowKey[] }>,
): Promise<readonly RowKey[]> {
  if (places.length === 0) return [];
  const { rows } = await find([
    toArrayLiteral(places.map(({ lane }) => lane)),
    toArrayLiteral(places.map(({ seq }) => seq)),
  ]);
  const present = new Set(rows.map(({ lane, seq }) => `${lane}/${seq}`));
  return places.filter(({ lane, seq }) => !present.has(`${lane}/${seq}`));
}

function addJudged(
  plain: readonly LaneAccount[],
  judged: readonly { readonly suspect: Suspect; readonly account: Account }[],
): readonly LaneAccount[] {
  const none = { unjudged: 0, lost: 0 };
  const byLane = new Map(plain.map((lane) => [lane.lane, { ...none, ...lane }]));
  for (const { suspect, account } of judged) {
    const lane = byLane.get(suspect.lane);
    if (lane !== undefined) lane[account] += 1;
  }
  return [...byLane.values()];
}

/** Adds two accounts. Pure. */
export function addAccounts(
  a: Omit<LaneAccount, "lane">,
  b: Omit<LaneAccount, "lane">,
): Omit<LaneAccount, "lane"> {
  return {
    written: a.written + b.written,
    sent: a.sent + b.sent,
    waiting: a.waiting + b.waiting,
    dead: a.dead + b.dead,
    discarded: a.discarded + b.discarded,
    unjudged: a.unjudged + b.unjudged,
    lost: a.lost + b.lost,
  };
}

/** Joins the results of two consecutive windows. Pure. */
export function joinWindows(first: CheckedWindow, second: CheckedWindow): CheckedWindow {
  const byLane = new Map(first.lanes.map((account) => [account.lane, account]));
  for (const account of second.lanes) {
    const { lane } = account;
    byLane.set(lane, { lane, ...addAccounts(byLane.get(lane) ?? noAccount, account) });
  }
  return {
    messages: first.messages + second.messages,
    high: second.high,
    lanes: [...byLane.values()],
    breaches: [...first.breaches, ...second.breaches],
    whole: first.whole && second.whole,
  };
}

function tid(page: number): string {
  return `(${page},0)`;
}

/** A message that is not clearly in one state, with the facts from its window. */
export interface Suspect {
  readonly id: string;
  readonly lane: number;
  readonly seq: string;
  /** True for a copy from a dropped day, whose receipt may have been dropped with that day. */
  readonly carried: boolean;
  /** Number of receipts for its row. */
  readonly times: number;
  readonly sentAt: string | null;
  /** Its outbox row: waiting, or blocking the key for a dead letter. */
  readonly row: "waiting" | "held" | null;
  /** Number of its dead letters from the outbox: all, open and replayed. */
  readonly letters: number;
  readonly open: number;
  readonly openSince: string | null;
  readonly replayed: number;
  readonly replayedAt: string | null;
}

/** Facts about a suspect from outside its window. */
export interface Trace {
  readonly id: string;
  /** A receipt far from its window has its seq. */
  readonly sent: boolean;
  /** An outbox row of a replay or republish waits. */
  readonly waits_again: boolean;
  readonly sent_again: boolean;
  /** Receipts of an older version may cover it without listing it. */
  readonly untold: boolean;
  /** A consumer received it, so it was sent; or the archive has another copy of it. */
  readonly delivered: boolean;
}

type Account = "sent" | "waiting" | "dead" | "discarded" | "unjudged" | "lost";

interface Judgement {
  readonly account: Account;
  readonly breaches: readonly Breach[];
}

/** Returns true if a suspect cannot be judged by its window alone. Pure. */
export function needsTrace(suspect: Suspect): boolean {
  return suspect.times === 0 && suspect.row === null && suspect.open === 0 && !isDiscarded(suspect);
}

/** Decides the state of a suspect, and its damage. Pure. */
export function judge(suspect: Suspect, trace?: Trace): Judgement {
  const { times, row, open } = suspect;
  const breach = (kind: Breach["kind"]): Breach => ({ kind, lane: suspect.lane, id: suspect.id });
  const breaches = [
    times > 0 && row !== null ? [breach("sent_and_waiting")] : [],
    times > 1 ? [breach("sent_twice")] : [],
    row === "waiting" && open > 0 ? [breach("dead_and_waiting")] : [],
    times > 0 && isDeadBeforeSent(suspect) ? [breach("dead_and_sent")] : [],
  ].flat();
  if (row === "waiting") return { account: "waiting", breaches };
  if (row === "held" || (open > 0 && times === 0)) return { account: "dead", breaches };
  if (times > 0) return { account: "sent", breaches };
  if (isDiscarded(suspect)) return { account: "discarded", breaches };
  return judgeUnexplained(suspect, trace, breach);
}

function judgeUnexplained(
  { replayed, carried }: Suspect,
  trace: Trace | undefined,
  breach: (kind: Breach["kind"]) => Breach,
): Judgement {
  if (trace === undefined) return { account: "unjudged", breaches: [] };
  if (trace.waits_again) return { account: "waiting", breaches: [] };
  if (trace.sent || trace.sent_again || trace.delivered) return { account: "sent", breaches: [] };
  if (carried || (replayed > 0 && trace.untold)) return { account: "unjudged", breaches: [] };
  return { account: "lost", breaches: [breach(replayed > 0 ? "replay_lost" : "message_lost")] };
}

// A dead letter newer than the receipt belongs to a copy that was sent again, which may fail without being damage.
function isDeadBeforeSent({ openSince, sentAt }: Suspect): boolean {
  return openSince !== null && sentAt !== null && Date.parse(openSince) < Date.parse(sentAt);
}

function isDiscarded({ letters, open, replayed }: Suspect): boolean {
  return letters - open - replayed > 0;
}
