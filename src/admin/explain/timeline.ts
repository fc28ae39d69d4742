import type { MessageLife } from "./message-life.ts";

/** Something that happened to a message. */
export interface Moment {
  readonly at: string;
  readonly what: string;
}

/** What the database still knows of a message's way, oldest first. Failed attempts leave only their last error. */
export function buildTimeline(life: MessageLife): readonly Moment[] {
  const { message, sent, handled, letters, actions } = life;
  const cause = message.causationId === null ? "" : `, caused by ${message.causationId}`;
  const moments: Moment[] = [
    { at: message.writtenAt, what: `written by ${message.source}${cause}` },
    ...sent.map(({ at, relay }) => ({ at, what: `confirmed by the transport to ${relay}` })),
    ...handled.map((row) => ({
      at: row.consumedAt,
      what: `${row.effect ? "handled" : "settled without effect"} by ${row.consumer}`,
    })),
    ...letters.flatMap((letter) => {
      const where = letter.consumer === null ? "in the outbox" : `at ${letter.consumer}`;
      const died = {
        at: letter.failedAt,
        what: `died ${where} (${letter.reason}), dead letter ${letter.id}`,
      };
      if (letter.closedAt === null) return [died];
      return [died, { at: letter.closedAt, what: `dead letter ${letter.id} ${letter.closedAs ?? "closed"}` }];
    }),
    ...actions.map(({ at, actor, action, reason, outcome }) => ({
      at,
      what: `${action} by ${actor}${outcome === "done" ? "" : `, ${outcome}`}${reason === null ? "" : `: ${reason}`}`,
    })),
  ];
  return moments.toSorted((a, b) => a.at.localeCompare(b.at));
}
