import { type Queryable, toArrayLiteral } from "../../storage/index.ts";
import type { Breach } from "./findings.ts";
import type { messageStatements } from "./message-statements.ts";

/** A run of pages of one day. */
export interface Window {
  readonly day: string;
  readonly fromPage: number;
  readonly toPage: number;
  /** The highest number of the window before it, so that what lay between the two is missed as well. */
  readonly after: string | null;
  /** The day of that window. */
  readonly afterDay: string | null;
}

export interface LaneAccount {
  readonly lane: number;
  readonly written: number;
  readonly sent: number;
  readonly waiting: number;
  readonly dead: number;
  readonly discarded: number;
  /** Nothing can be said any more: what would prove it is gone with its day. */
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
  /** Some rows were too many to be looked at. */
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

/** How many pages around a window are looked through for a message that its receipts name. */
const PAGES_AROUND = 2_048;

/** Counts one window and explains what is not plain, all in the snapshot of the caller's transaction. */
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

/** Pure. */
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

/** Pure. Two windows, of which the second follows the first, as one. */
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

/** A message whose account is not plain: what its window shows of it. */
export interface Suspect {
  readonly id: string;
  readonly lane: number;
  readonly seq: string;
  /** Copied here from a day that was dropped; where it was sent, its receipt went with that day. */
  readonly carried: boolean;
  /** How many receipts name its row. */
  readonly times: number;
  readonly sentAt: string | null;
  /** Its own row in the outbox: waiting, or holding the place of a dead letter. */
  readonly row: "waiting" | "held" | null;
  /** Its dead letters from the outbox: all, the open ones, the replayed ones. */
  readonly letters: number;
  readonly open: number;
  readonly openSince: string | null;
  readonly replayed: number;
  readonly replayedAt: string | null;
}

/** What was found of it everywhere else. */
export interface Trace {
  readonly id: string;
  /** A receipt far from its window names it. */
  readonly sent: boolean;
  /** A row of a replay or of a republish waits. */
  readonly waits_again: boolean;
  readonly sent_again: boolean;
  /** Receipts of an older version may have named it without saying so. */
  readonly untold: boolean;
  /** Somebody received it, so it was sent; or it is a copy beside the original. */
  readonly delivered: boolean;
}

type Account = "sent" | "waiting" | "dead" | "discarded" | "unjudged" | "lost";

interface Judgement {
  readonly account: Account;
  readonly breaches: readonly Breach[];
}

/** Pure. Whether a suspect needs a look beyond its window. */
export function needsTrace(suspect: Suspect): boolean {
  return suspect.times === 0 && suspect.row === null && suspect.open === 0 && !isDiscarded(suspect);
}

/** Pure. Which account a message belongs to, and what is wrong with it. */
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

// A letter that came after the receipt is that of a copy sent again, which may well die.
function isDeadBeforeSent({ openSince, sentAt }: Suspect): boolean {
  return openSince !== null && sentAt !== null && Date.parse(openSince) < Date.parse(sentAt);
}

function isDiscarded({ letters, open, replayed }: Suspect): boolean {
  return letters - open - replayed > 0;
}
