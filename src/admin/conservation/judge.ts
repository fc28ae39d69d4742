import type { Breach } from "./findings.ts";

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

export type Account = "sent" | "waiting" | "dead" | "discarded" | "unjudged" | "lost";

export interface Judgement {
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
