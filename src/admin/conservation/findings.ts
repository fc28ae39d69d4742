/** The kinds of damage, what each means, and what an operator should do. */
export const findingKinds = {
  message_lost: {
    means: "A message was written but is neither sent, waiting, dead-lettered nor discarded.",
    whatToDo:
      "Send it again from the archive: sagabox republish (or bus.republish) over the time it was written.",
  },
  message_unarchived: {
    means: "A receipt exists for a sent message that is no longer in the archive.",
    whatToDo: "Rows of the archive were deleted. Restore them from a backup, or republish from the source.",
  },
  sent_and_waiting: {
    means: "A message has a receipt and still waits to be sent.",
    whatToDo:
      "It will be sent again, and consumers skip the duplicate. Find out who changed the outbox by hand.",
  },
  sent_twice: {
    means: "A message has two receipts for one row.",
    whatToDo: "Consumers skip the duplicate. Find out who changed the receipts or the outbox by hand.",
  },
  dead_and_waiting: {
    means: "A message is an open dead letter and waits to be sent as well.",
    whatToDo: "Replay or discard the dead letter: sagabox dlq show <id>. If the message is sent, discard it.",
  },
  dead_and_sent: {
    means: "A message was sent after it was dead-lettered, and the dead letter is still open.",
    whatToDo: "Discard the dead letter if the message reached its consumers: sagabox explain <id>.",
  },
  replay_lost: {
    means:
      "A dead letter was replayed, but its message is neither waiting, sent, handled nor dead-lettered again.",
    whatToDo: "Send it again from the archive: sagabox republish. See: sagabox explain <id>.",
  },
  row_without_message: {
    means: "The message of an outbox or queue row is not in the archive.",
    whatToDo: "It cannot be sent. Restore the message from a backup, or delete the row.",
  },
  row_mismatch: {
    means: "An outbox row is not the row that was written with its message.",
    whatToDo: "The outbox was changed by hand. Delete the row if the message is already sent.",
  },
  delivery_without_group: {
    means: "A delivery waits for a consumer group that does not exist.",
    whatToDo: "It will never be delivered. Restore the group, or delete the rows.",
  },
  stale_key_block: {
    means: "An outbox row blocks its key, but its dead letter is not open.",
    whatToDo: "The key is blocked. Check the message with sagabox explain <id>, then delete the row.",
  },
  blocking_row_missing: {
    means: "A dead letter should block its key, but its outbox row is missing.",
    whatToDo: "Later messages of its key may have overtaken it. Replay or discard it: sagabox dlq show <id>.",
  },
  scheduled_and_written: {
    means: "A scheduled message is already in the archive.",
    whatToDo: "It will be sent a second time; delete the scheduled row if it was sent: sagabox explain <id>.",
  },
  undo_unknown: {
    means: "An effect is marked as undone by a command that was never handled.",
    whatToDo: "The inbox was changed by hand. Check the effect: sagabox explain <id>.",
  },
  effect_unknown: {
    means: "A command counts as done because of an earlier command that had no effect.",
    whatToDo: "The inbox was changed by hand. Check the effect: sagabox explain <id>.",
  },
  lease_overlong: {
    means: "A lease is longer than allowed: the server's clock went back, or the row was changed by hand.",
    whatToDo:
      "Correct the clock. Other workers cannot take over its lanes: delete the row if its process has ended.",
  },
  lease_over: {
    means:
      "A process whose lease ended minutes ago is still listed, although other workers should remove it.",
    whatToDo: "Check the logs of the workers: their upkeep does not run. See also: sagabox doctor.",
  },
  claim_overlong: {
    means: "A saga is claimed for longer than a lease may last.",
    whatToDo: "Correct the clock of the server; the saga does not run until then.",
  },
  saga_without_incident: {
    means: "A saga has failed, but it has no open incident.",
    whatToDo: "Check it with sagabox saga show <id>, and retry or compensate it.",
  },
  incident_without_saga: {
    means: "An incident is open for a saga that has not failed, or does not exist.",
    whatToDo: "Check it with sagabox saga show <id>; close the incident by hand if the saga does not exist.",
  },
} as const satisfies Readonly<Record<string, { readonly means: string; readonly whatToDo: string }>>;

export type FindingKind = keyof typeof findingKinds;

/** Damage of one kind in one lane: its count and the first 20 ids. */
export interface ConservationFinding {
  readonly kind: FindingKind;
  /** Null if the damage does not belong to a lane. */
  readonly lane: number | null;
  readonly count: number;
  readonly ids: readonly string[];
  readonly means: string;
  readonly whatToDo: string;
}

/** One damaged message or row. */
export interface Breach {
  readonly kind: FindingKind;
  readonly lane: number | null;
  readonly id: string;
}

/** Upper bound for the ids in a finding. */
const MAX_NAMED_IDS = 20;

/** Groups breaches of one kind and lane into one finding. Pure. */
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
