import { laneFor } from "../../message/index.ts";
import { readSlotKey, type GroupState, type Member, type Slot } from "./group-state.ts";

/** What one member knows and wants when it looks at the record. */
export interface MemberView {
  readonly me: string;
  readonly topics: readonly string[];
  /** Members whose beat has stood still for a lease. */
  readonly dead: ReadonlySet<string>;
  /** What I read now, by term. */
  readonly running: ReadonlyMap<string, number>;
  /** Of these, what I am about to hand over. */
  readonly draining: ReadonlySet<string>;
  /** Terms whose consumer I have made, and where it begins. */
  readonly opened: ReadonlyMap<string, { readonly epoch: number; readonly at: number }>;
  /** What I have given back since. */
  readonly released: ReadonlyMap<string, { readonly at: number; readonly done: readonly number[] }>;
  readonly leaving: boolean;
}

export interface Plan {
  readonly state: GroupState;
  /** Whether it differs by more than my beat. */
  readonly changed: boolean;
  /** New terms of mine: the slot as it is now and as it was. */
  readonly taken: readonly { readonly key: string; readonly slot: Slot; readonly before: Slot }[];
  /** Mine until their last delivery is settled, then somebody else's. */
  readonly shed: readonly string[];
  /** No longer mine. */
  readonly lost: readonly string[];
}

/** Everybody computes from the same record: who is missing is struck out, and each topic is shared evenly. */
export function planGroup(before: GroupState, wishes: MemberView): Plan {
  const { me, leaving } = wishes;
  const members = liveMembers(before, wishes);
  const slots = new Map(
    Object.entries(before.slots).map(([key, slot]) => [key, updateSlot(key, slot, members, wishes)]),
  );
  const taken: { key: string; slot: Slot; before: Slot }[] = [];
  const shed: string[] = [];
  const free = (key: string, slot: Slot): void => void slots.set(key, { ...slot, owner: null });
  const take = (key: string, slot: Slot): void => {
    const mine = newTerm(slot, me);
    slots.set(key, mine);
    taken.push({ key, slot: mine, before: slot });
  };
  if (!leaving) {
    for (const topic of wishes.topics) shareTopic({ topic, slots, members, wishes, take, free, shed });
  }
  const lost = [...wishes.running].flatMap(([key, epoch]) => {
    const slot = slots.get(key);
    return slot?.owner === me && slot.epoch === epoch ? [] : [key];
  });
  const state = { ...before, members: Object.fromEntries(members), slots: Object.fromEntries(slots) };
  return { state, changed: hasChanged(before, state, me), taken, shed, lost };
}

function liveMembers(before: GroupState, { me, topics, dead, leaving }: MemberView): Map<string, Member> {
  const members = new Map(Object.entries(before.members).filter(([id]) => id === me || !dead.has(id)));
  const beat = (members.get(me)?.beat ?? 0) + 1;
  if (leaving) members.delete(me);
  else members.set(me, { beat, topics });
  return members;
}

/** The slot after what is known of it: its owner gone, given back by me, or begun by me. */
function updateSlot(key: string, slot: Slot, members: ReadonlyMap<string, Member>, wishes: MemberView): Slot {
  const { me, opened, released } = wishes;
  if (slot.owner !== me) {
    return slot.owner !== null && !members.has(slot.owner) ? { ...slot, owner: null } : slot;
  }
  const begun = opened.get(key);
  const known = begun?.epoch === slot.epoch ? startTermAt(slot, begun.at) : slot;
  const back = released.get(key);
  if (back !== undefined && wishes.running.get(key) === slot.epoch) {
    const { at, done } = back;
    return { ...known, owner: null, at, done };
  }
  return wishes.leaving ? { ...known, owner: null } : known;
}

function startTermAt(slot: Slot, at: number): Slot {
  if (slot.base === slot.epoch) return slot;
  return { ...slot, base: slot.epoch, at };
}

/** A consumer nobody has read from may be used as it is; any other might still owe somebody something. */
function newTerm(slot: Slot, owner: string): Slot {
  const { fresh, ...rest } = slot;
  return fresh === true ? { ...rest, owner } : { ...rest, owner, epoch: slot.epoch + 1 };
}

interface TopicShare {
  readonly topic: string;
  readonly slots: ReadonlyMap<string, Slot>;
  readonly members: ReadonlyMap<string, Member>;
  readonly wishes: MemberView;
  readonly take: (key: string, slot: Slot) => void;
  /** Gives back a slot that this member owns and does not read. */
  readonly free: (key: string, slot: Slot) => void;
  readonly shed: string[];
}

function shareTopic({ topic, slots, members, wishes, take, free, shed }: TopicShare): void {
  const { me, running, draining, released } = wishes;
  const ofTopic = [...slots].filter(([key]) => readSlotKey(key).topic === topic).sort(byPartition);
  const mine = ofTopic.filter(([, slot]) => slot.owner === me);
  const target = computeShare(me, topic, members, ofTopic.length);
  const staying = mine.filter(([key]) => !draining.has(key));
  for (const [key, slot] of staying.slice(target)) {
    // A slot that is not read has nothing to drain, so no later delivery would ever give it back.
    if (running.has(key)) shed.push(key);
    else free(key, slot);
  }
  // Mine by the record, but the connection was lost, or the consumer was: a new term.
  for (const [key, slot] of staying.slice(0, target)) if (!running.has(key)) take(key, slot);
  const unowned = ofTopic.filter(([key, slot]) => slot.owner === null && !released.has(key));
  for (const [key, slot] of unowned.slice(0, Math.max(0, target - mine.length))) take(key, slot);
}

/** Who gets one more than the others differs from topic to topic. */
function computeShare(
  me: string,
  topic: string,
  members: ReadonlyMap<string, Member>,
  count: number,
): number {
  const able = [...members].flatMap(([id, member]) => (member.topics.includes(topic) ? [id] : [])).sort();
  const place = (able.indexOf(me) + laneFor(topic)) % able.length;
  return Math.floor(count / able.length) + (place < count % able.length ? 1 : 0);
}

function byPartition([a]: [string, Slot], [b]: [string, Slot]): number {
  return readSlotKey(a).partition - readSlotKey(b).partition;
}

function hasChanged(before: GroupState, after: GroupState, me: string): boolean {
  const withoutBeat = (state: GroupState): string =>
    JSON.stringify({ ...state, members: { ...state.members, [me]: state.members[me]?.topics } });
  return withoutBeat(before) !== withoutBeat(after);
}
