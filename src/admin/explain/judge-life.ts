import type { AheadRow, DeadLetterRow, MessageLife, MovingRow } from "./message-life.ts";

/** One place where the message is, why it is there, and what happens next. */
export interface Standing {
  /** The outbox, or the consumer it is on its way to. */
  readonly where: string;
  readonly state:
    "scheduled" | "waiting" | "held back" | "retrying" | "dead" | "sent" | "handled" | "not handled";
  readonly why: string;
  /** What happens by itself, or the command for a person. */
  readonly next: string;
}

/** Where a message stands on its whole way, the place nearest to its writer first. */
export function judgeLife(life: MessageLife): readonly Standing[] {
  const { message, outbox, letters } = life;
  if (message.scheduledFor !== null) return [judgeScheduled(message.scheduledFor)];
  const open = letters.filter(({ closedAt }) => closedAt === null);
  const sending = outbox.map((row) => judgeMoving("outbox", row, open.find(isFromOutbox)));
  const died = open
    .filter((letter) => isFromOutbox(letter) && !outbox.some(({ isHeld }) => isHeld))
    .map(judgeDead);
  const sent = sending.length + died.length > 0 ? [] : [judgeSent(life)];
  return [...sending, ...died, ...sent, ...judgeConsumers(life, open)];
}

function judgeConsumers(life: MessageLife, open: readonly DeadLetterRow[]): Standing[] {
  const { deliveries, handled, subscribers, outbox } = life;
  const letters = open.filter((letter) => !isFromOutbox(letter));
  const seen = new Set<string>();
  const note = (where: string | null, standing: Standing): Standing => {
    seen.add(where ?? "");
    return standing;
  };
  const standings = [
    ...deliveries.map((row) => note(row.consumer, judgeMoving(`consumer ${row.consumer}`, row))),
    ...letters.map((letter) => note(letter.consumer, judgeDead(letter))),
    ...handled
      .filter(({ consumer }) => !seen.has(consumer))
      .map((row) => note(row.consumer, judgeHandled(row))),
  ];
  if (outbox.length > 0 || life.message.scheduledFor !== null) return standings;
  if (subscribers.length + standings.length === 0 && life.hasSubscriptions) return [judgeUnsubscribed(life)];
  const silent = subscribers.filter(({ name }) => !seen.has(name));
  return [...standings, ...silent.map(({ name, since }) => judgeNotHandled(name, since, life.message))];
}

function judgeScheduled(at: string): Standing {
  return {
    where: "outbox",
    state: "scheduled",
    why: `it was published for ${at}`,
    next: `It enters the outbox at ${at}, if a worker runs then.`,
  };
}

function judgeMoving(where: string, row: MovingRow, letter?: DeadLetterRow): Standing {
  if (row.isHeld) return judgeHeld(where, letter);
  if (row.ahead !== null) return judgeBehind(where, row.ahead);
  if (row.isOptimistic) {
    const next = "If it does not get through, the relay sends it when that short lease is over.";
    return { where, state: "waiting", why: "the process that wrote it is sending it", next };
  }
  const error = row.lastError === null ? "" : `: ${row.lastError}`;
  if (!row.isDue) {
    const why = row.attempts === 0 ? `it was put off${error}` : `attempt ${row.attempts} failed${error}`;
    const most = row.consumer === null ? ` of ${row.maxAttempts}` : ""; // a consumer has a policy of its own
    const next = `Attempt ${row.attempts + 1}${most} is due at ${row.dueAt ?? "an unknown time"}.`;
    return { where, state: "retrying", why, next };
  }
  const again = row.attempts === 0 ? "" : ` after ${row.attempts} failed attempts${error}`;
  if (row.owner === null) {
    const why = `it is due${again}, but no running worker owns lane ${row.lane}`;
    return { where, state: "waiting", why, next: "Start a worker: sagabox worker --app <module>" };
  }
  const next = `Worker ${row.owner} owns its lane and takes it next. If this stays so, look at the log of that worker.`;
  return { where, state: "waiting", why: `it is due${again}`, next };
}

function judgeHeld(where: string, letter: DeadLetterRow | undefined): Standing {
  const id = letter?.id ?? "<id>";
  return {
    where,
    state: "dead",
    why: `it died${letter === undefined ? "" : ` (${letter.reason}: ${letter.errorMessage})`} and holds its key back, as its contract wants`,
    next: `Replay or discard dead letter ${id}; the key goes on then.`,
  };
}

function judgeBehind(where: string, ahead: AheadRow): Standing {
  const error = ahead.lastError === null ? "" : `: ${ahead.lastError}`;
  const why = ahead.isHeld
    ? `message ${ahead.messageId} of the same key died in front of it and holds the key`
    : `message ${ahead.messageId} of the same key goes first${ahead.attempts === 0 ? "" : ` and failed ${ahead.attempts} times${error}`}`;
  const when =
    ahead.dueAt === null
      ? "when a person decides about that one"
      : `after that one, which is due at ${ahead.dueAt}`;
  return {
    where,
    state: "held back",
    why,
    next: `It goes on ${when}. See: sagabox explain ${ahead.messageId}`,
  };
}

function judgeDead(letter: DeadLetterRow): Standing {
  const { id, consumer, reason, attempts, errorType, errorMessage } = letter;
  return {
    where: consumer === null ? "outbox" : `consumer ${consumer}`,
    state: "dead",
    why: `${reason} after ${attempts} attempts: ${errorType}: ${errorMessage}`,
    next: `Nothing by itself. Repair the cause, then replay dead letter ${id}, or discard it.`,
  };
}

function judgeSent({ sent, letters, hasSubscriptions }: MessageLife): Standing {
  const last = sent.at(-1);
  const discarded = letters.find((letter) => isFromOutbox(letter) && letter.closedAs === "discarded");
  if (last === undefined && discarded !== undefined) {
    const why = `it died and a person discarded it at ${discarded.closedAt ?? "?"}`;
    return { where: "outbox", state: "dead", why, next: "Nothing." };
  }
  const times = sent.length > 1 ? `, the last of ${sent.length} times` : "";
  const why =
    last === undefined
      ? "it is not in the outbox any more, and its receipt is not kept"
      : `the transport confirmed it to ${last.relay} at ${last.at}${times}`;
  const next = hasSubscriptions
    ? "Nothing more on this side."
    : "Nothing more on this side. Nobody has subscribed to anything in this database; a broker knows who gets it there.";
  return { where: "outbox", state: "sent", why, next };
}

function judgeHandled(row: MessageLife["handled"][number]): Standing {
  const took = row.durationMs === null ? "" : ` in ${row.durationMs} ms`;
  const undone = row.undoneBy === null ? "" : `, and undone by ${row.undoneBy}`;
  const why = row.effect
    ? `its effect was committed at ${row.consumedAt}${took}${undone}`
    : `it was settled at ${row.consumedAt} without an effect${row.effectOf === null ? "" : `; ${row.effectOf} stands for it`}`;
  const next = "Further copies are recognised as duplicates.";
  return { where: `consumer ${row.consumer}`, state: "handled", why, next };
}

// Where there are subscriptions at all, PostgreSQL carries the messages and knows everybody who wants them.
function judgeUnsubscribed({ message: { topic } }: MessageLife): Standing {
  return {
    where: "consumers",
    state: "not handled",
    why: `nobody has subscribed to topic ${topic} in this database`,
    next: "Nothing: not every message has a reader. If somebody should have it, compare the topic with the names that consumers use.",
  };
}

// Only the Postgres transport leaves a delivery for each group here; behind a broker the broker knows more.
function judgeNotHandled(
  consumer: string,
  since: string,
  { type, writtenAt }: MessageLife["message"],
): Standing {
  const late = since > writtenAt;
  return {
    where: `consumer ${consumer}`,
    state: "not handled",
    why: late
      ? `it subscribed at ${since}, after the message was written`
      : "it subscribed, and neither handled it, nor is it on its way in this database",
    next: late
      ? "Nothing. Republish the time window if it should have it."
      : `See whether it has a handler for ${type}: an event of a type it does not know is passed over, unless \`unknown\` says otherwise. ` +
        "Else look at the broker, or at how long dedupe rows are kept.",
  };
}

function isFromOutbox({ origin }: DeadLetterRow): boolean {
  return origin === "outbox";
}
