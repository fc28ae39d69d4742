/** What the members of a group agree on: one record, replaced as a whole by whoever saw its last version. */
export interface GroupState {
  readonly members: Readonly<Record<string, Member>>;
  /** By `slotKey`. */
  readonly slots: Readonly<Record<string, Slot>>;
  /** When the stream was made whose sequences these are. */
  readonly born?: string;
}

export interface Member {
  /** Counts up while it lives; others watch it move. */
  readonly beat: number;
  readonly topics: readonly string[];
}

/** One partition of one topic. */
export interface Slot {
  readonly owner: string | null;
  /** Which term of office this is; each has a consumer of its own at the server. */
  readonly epoch: number;
  /** The last term whose consumer is known to have been made. */
  readonly base: number;
  /** No term begins before this sequence of the stream. */
  readonly at: number;
  /** Sequences after it that are settled already. */
  readonly done?: readonly number[];
  /** Nobody has read from its consumer yet. */
  readonly fresh?: true;
}

export const emptyState: GroupState = Object.freeze({ members: {}, slots: {} });

export function slotKey(topic: string, partition: number): string {
  return `${topic}/${partition}`;
}

export function readSlotKey(key: string): { readonly topic: string; readonly partition: number } {
  const at = key.lastIndexOf("/");
  return { topic: key.slice(0, at), partition: Number(key.slice(at + 1)) };
}

/** The record for a stream made at that time: nothing that was known of an earlier one holds. */
export function resetForNewStream(state: GroupState, born: string): GroupState {
  if (state.born === undefined) return { ...state, born };
  const resetSlot = (slot: Slot): Slot => ({ owner: null, epoch: slot.epoch, base: slot.epoch, at: 1 });
  const slots = Object.entries(state.slots).map(([key, slot]) => [key, resetSlot(slot)] as const);
  return { ...state, born, slots: Object.fromEntries(slots) };
}
