/**
 * The group record that all members share. A member replaces it as a whole, and only if it has read the last version.
 */
export interface GroupState {
  readonly members: Readonly<Record<string, Member>>;
  /** Keyed by `slotKey`. */
  readonly slots: Readonly<Record<string, Slot>>;
  /** Creation time of the stream that the sequences in this record belong to. */
  readonly born?: string;
}

export interface Member {
  /** Heartbeat counter. Other members consider this member dead when it stops increasing. */
  readonly beat: number;
  readonly topics: readonly string[];
}

/** One partition of one topic. */
export interface Slot {
  readonly owner: string | null;
  /** Number of the current term. Each term has its own consumer at the server. */
  readonly epoch: number;
  /** The last term whose consumer is known to exist. */
  readonly base: number;
  /** Lower bound for the start sequence of every term. */
  readonly at: number;
  /** Sequences above `at` that are already settled. */
  readonly done?: readonly number[];
  /** True if the slot's consumer was created but never read. */
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

/** Returns the record for a newly created stream, without the positions in the deleted one. */
export function resetForNewStream(state: GroupState, born: string): GroupState {
  if (state.born === undefined) return { ...state, born };
  const resetSlot = (slot: Slot): Slot => ({ owner: null, epoch: slot.epoch, base: slot.epoch, at: 1 });
  const slots = Object.entries(state.slots).map(([key, slot]) => [key, resetSlot(slot)] as const);
  return { ...state, born, slots: Object.fromEntries(slots) };
}
