/** What can be wrong, what it means, and what a person does about it. */
export const findingKinds = {
  message_lost: {
    means: "A message was written and is nowhere: not sent, not waiting, not dead, not discarded.",
    whatToDo:
      "Send it again from the archive: sagabox republish (or bus.republish) over the time it was written.",
  },
  message_unarchived: {
    means: "A receipt says that a message was sent which is no longer in the archive.",
    whatToDo:
      "Somebody deleted rows of the archive. Restore them from a backup, or republish from the source.",
  },
  sent_and_waiting: {
    means: "A message has a receipt and still waits to be sent.",
    whatToDo: "It will be sent again; consumers recognise the id. Look who wrote to the outbox by hand.",
  },
  sent_twice: {
    means: "A message has two receipts for one row.",
    whatToDo: "Consumers recognise the id. Look who wrote to the receipts or the outbox by hand.",
  },
  dead_and_waiting: {
    means: "A message is an open dead letter and waits to be sent as well.",
    whatToDo:
      "Decide about the letter: sagabox dlq show <letter>. If the message is sent, discard the letter.",
  },
  dead_and_sent: {
    means: "A message was sent after it had become a dead letter that is still open.",
    whatToDo: "Discard the letter if the message reached its consumers: sagabox explain <id>.",
  },
  replay_lost: {
    means:
      "A dead letter was replayed, and its message neither waits nor was sent or handled, nor died again.",
    whatToDo: "Send it again from the archive: sagabox republish. See: sagabox explain <id>.",
  },
  row_without_message: {
    means: "A row waits to be sent or delivered whose message is not in the archive.",
    whatToDo: "It cannot be sent. Restore the message from a backup, or delete the row.",
  },
  row_of_another: {
    means: "A row waits to be sent that is not the row its message was written with.",
    whatToDo: "Somebody wrote to the outbox by hand. Delete the row if the message is sent already.",
  },
  delivery_to_nobody: {
    means: "A delivery waits for a consumer group that does not exist.",
    whatToDo: "Nobody will ever take it. Restore the group, or delete the rows.",
  },
  key_held_by_nobody: {
    means: "A row keeps its key waiting for a dead letter that is not open.",
    whatToDo: "The key stands still. Delete the row, after looking: sagabox explain <id>.",
  },
  place_lost: {
    means: "A dead letter should keep its key waiting, and its place in the outbox is gone.",
    whatToDo:
      "Later messages of its key may have overtaken it. Replay or discard it: sagabox dlq show <letter>.",
  },
  scheduled_and_written: {
    means: "A message waits for its time and is in the archive already.",
    whatToDo: "It will be sent a second time; delete the scheduled row if it was sent: sagabox explain <id>.",
  },
  undo_unknown: {
    means: "An effect is marked as taken back by a command that was never handled.",
    whatToDo: "Somebody changed the inbox. Check the effect by hand: sagabox explain <id>.",
  },
  effect_unknown: {
    means: "A command counts as done because of an earlier one, which is marked as without effect.",
    whatToDo: "Somebody changed the inbox. Check the effect by hand: sagabox explain <id>.",
  },
  lease_overlong: {
    means: "A lease ends later than any lease may: the clock of the server went back, or somebody wrote it.",
    whatToDo:
      "Set the clock right. Nobody can take over its lanes before: delete the row of a process that is gone.",
  },
  lease_over: {
    means: "A process whose lease ended minutes ago is still listed although others are there to remove it.",
    whatToDo: "Look at the log of the workers: they do not get to their upkeep. sagabox doctor tells more.",
  },
  claim_overlong: {
    means: "A saga is claimed for longer than any lease may last.",
    whatToDo: "Set the clock of the server right; the saga stands still until then.",
  },
  saga_without_incident: {
    means: "A saga has failed and no incident calls a person.",
    whatToDo: "Look at it: sagabox saga show <id>. Retrying or compensating it opens its way again.",
  },
  incident_without_saga: {
    means: "An incident is open for a saga that has not failed, or does not exist.",
    whatToDo: "Look at it: sagabox saga show <id>; close the incident by hand if the saga is gone.",
  },
} as const satisfies Readonly<Record<string, { readonly means: string; readonly whatToDo: string }>>;

export type FindingKind = keyof typeof findingKinds;

/** One kind of damage in one lane: how often, and the first few ids. */
export interface ConservationFinding {
  readonly kind: FindingKind;
  /** Null where it does not belong to a lane. */
  readonly lane: number | null;
  readonly count: number;
  readonly ids: readonly string[];
  readonly means: string;
  readonly whatToDo: string;
}

/** A single thing that is wrong. */
export interface Breach {
  readonly kind: FindingKind;
  readonly lane: number | null;
  readonly id: string;
}

/** How many ids a finding names. */
const MAX_NAMED_IDS = 20;

/** Pure. Breaches of one kind in one lane become one finding. */
export function toFindings(breaches: readonly Breach[]): readonly ConservationFinding[] {
  const groups = new Map<string, Breach[]>();
  for (const breach of breaches) {
    const name = `${breach.kind} ${breach.lane ?? ""}`;
    const known = groups.get(name);
    if (known === undefined) groups.set(name, [breach]);
    else if (!known.some(({ id }) => id === breach.id)) known.push(breach);
  }
  return [...groups.values()].flatMap((same) => {
    const [first] = same;
    if (first === undefined) return [];
    const { kind, lane } = first;
    const ids = same.slice(0, MAX_NAMED_IDS).map(({ id }) => id);
    return [{ kind, lane, count: same.length, ids, ...findingKinds[kind] }];
  });
}
