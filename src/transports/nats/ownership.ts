import type { Subscription } from "@nats-io/transport-node";
import { laneFor } from "../../message/index.ts";
import {
  after,
  type CancelTimer,
  Loop,
  backoffMs,
  randomToken,
  sleep,
  systemClock,
} from "../../runtime/index.ts";
import type { GroupRecord } from "./group-record.ts";
import { type GroupState, type Member, readSlotKey, type Slot } from "./group-state.ts";
import type { Session } from "./link.ts";
import type { PartitionReader } from "./partition-reader.ts";
import type { Term, TermOpener } from "./term.ts";
import { trySend } from "./try-send.ts";

export interface OwnershipParts {
  readonly record: GroupRecord;
  /** The subject on which members notify each other of changes to the record. */
  readonly hint: string;
  readonly topics: readonly string[];
  readonly leaseMs: number;
  readonly opener: TermOpener;
  /** Returns true if the record belonged to a deleted stream and was reset. */
  readonly checkStream: (session: Session) => Promise<boolean>;
  readonly begin: (reader: PartitionReader) => void;
  readonly end: (reader: PartitionReader) => void;
  readonly holds: (reader: PartitionReader) => boolean;
  readonly failed: (error: unknown) => void;
  readonly fine: () => void;
}

const MAX_TRIES = 20;
/** Wait after another member changed the group record first. */
const CONFLICT_BACKOFF = { firstMs: 5, maxMs: 100, jitter: 1 };

/**
 * One member of a group. Keeps its entry in the group record, takes its share of the partitions and releases those
 * beyond it. A member measures its own lease from before it sends a heartbeat; the others measure it from when they see
 * the heartbeat. So a member that is cut off stops handing out messages before another one takes over.
 */
export class Ownership {
  readonly #parts: OwnershipParts;
  readonly #me = randomToken().slice(0, 12);
  readonly #terms = new Map<string, Term>();
  readonly #seen = new Map<string, { readonly beat: number; readonly sinceMs: number }>();
  readonly #loop: Loop;
  #session: Session | undefined;
  #hints: Subscription | undefined;
  #validUntilMs = 0;
  #beatMs = -Infinity;
  #lapse: CancelTimer | undefined;

  constructor(parts: OwnershipParts) {
    this.#parts = parts;
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: parts.failed,
      maxBackoffMs: Math.min(500, parts.leaseMs / 4),
    });
  }

  get partitions(): number {
    return this.#terms.size;
  }

  isValid(): boolean {
    return systemClock.monotonicMs() < this.#validUntilMs;
  }

  /** Joins the group and takes free partitions; then keeps the membership up to date in the background. */
  async start(session: Session): Promise<void> {
    this.#session = session;
    this.#seen.clear(); // heartbeats missed while this member was disconnected do not count
    this.#hints = session.nc.subscribe(this.#parts.hint, {
      callback: (error, msg) => {
        if (error === null && msg.string() !== this.#me) this.#loop.wake();
      },
    });
    if (this.#loop.running) return this.#loop.wake();
    await this.#step();
    await this.#loop.start();
  }

  /** Drops all terms after the connection was lost. */
  dropConnection(): void {
    this.#session = undefined;
    this.#dropAll();
  }

  /**
   * Drops a term whose consumer no longer exists. The next read of the record shows whether another member took over.
   */
  dropTerm(key: string): void {
    this.#drop(key);
    this.#loop.wake();
  }

  /** Called after each settled delivery: a draining partition may be empty now and ready to release. */
  checkDrained(): void {
    for (const term of this.#terms.values()) {
      if (term.draining && !term.drained && !this.#parts.holds(term.reader)) {
        term.drained = true;
        this.#loop.wake();
      }
    }
  }

  async leave(): Promise<void> {
    await this.#loop.stop();
    const session = this.#session;
    this.#hints?.unsubscribe();
    this.#lapse?.();
    for (const term of this.#terms.values()) term.reader.drain();
    try {
      if (session !== undefined) {
        await this.#updateRecord(session, true);
        this.#publishHint(session);
      }
    } finally {
      this.#dropAll();
      this.#session = undefined;
    }
  }

  async #step(): Promise<number> {
    const session = this.#session;
    if (session === undefined) return Infinity;
    const plan = await this.#updateRecord(session, false);
    if (this.#session !== session) return 0;
    const opened = await this.#applyPlan(session, plan);
    if (plan.changed) this.#publishHint(session);
    this.#parts.fine();
    return opened ? 0 : this.#parts.leaseMs / 4;
  }

  /** Reads the record, plans and writes it. If another member wrote in between, starts over. */
  async #updateRecord(session: Session, leaving: boolean): Promise<Plan> {
    const { record, leaseMs } = this.#parts;
    for (let tries = 1; ; tries++) {
      const { value, revision } = await record.read(session);
      const wishes = this.#buildView(value, leaving);
      const plan = planGroup(value, wishes);
      const nowMs = systemClock.monotonicMs();
      if (!plan.changed && !leaving && nowMs - this.#beatMs < leaseMs / 8) return plan;
      if (await record.write(session, plan.state, revision)) {
        this.#extendLease(wishes, session, nowMs);
        return plan;
      }
      if (tries === MAX_TRIES) throw new Error("the group record changes too often");
      await sleep(backoffMs(CONFLICT_BACKOFF, tries));
    }
  }

  #buildView(state: GroupState, leaving: boolean): MemberView {
    const terms = [...this.#terms];
    const give = ([, term]: [string, Term]): boolean => leaving || term.drained;
    return {
      me: this.#me,
      topics: this.#parts.topics,
      dead: this.#findDead(state),
      running: new Map(terms.map(([key, { epoch }]) => [key, epoch])),
      draining: new Set(terms.flatMap(([key, { draining }]) => (draining ? [key] : []))),
      opened: new Map(terms.map(([key, { epoch, at }]) => [key, { epoch, at }])),
      released: new Map(terms.filter(give).map(([key, { reader }]) => [key, reader.readPosition()])),
      leaving,
    };
  }

  #findDead({ members }: GroupState): Set<string> {
    const nowMs = systemClock.monotonicMs();
    const dead = new Set<string>();
    for (const [id, { beat }] of Object.entries(members)) {
      const seen = this.#seen.get(id);
      if (seen?.beat !== beat) this.#seen.set(id, { beat, sinceMs: nowMs });
      else if (nowMs - seen.sinceMs > this.#parts.leaseMs) dead.add(id);
    }
    for (const id of this.#seen.keys()) if (!(id in members)) this.#seen.delete(id);
    return dead;
  }

  #extendLease(wishes: MemberView, session: Session, sentMs: number): void {
    const validMs = this.#parts.leaseMs * 0.8;
    this.#beatMs = sentMs;
    this.#validUntilMs = sentMs + validMs;
    this.#lapse?.();
    this.#lapse = after(validMs - (systemClock.monotonicMs() - sentMs), () => this.#dropAll(), {
      unref: true,
    });
    for (const [key, { epoch }] of wishes.opened) {
      const term = this.#terms.get(key);
      if (term?.epoch === epoch) void this.#parts.opener.removeFormer(session, term);
    }
    for (const key of wishes.released.keys()) this.#drop(key);
  }

  /** Returns true if consumers were created, so that the record is updated soon. */
  async #applyPlan(session: Session, { taken, shed, lost }: Plan): Promise<boolean> {
    for (const key of lost) this.#drop(key);
    for (const key of shed) this.#startDrain(key);
    if (taken.length > 0 && (await this.#parts.checkStream(session))) return true;
    const results = await Promise.allSettled(
      taken.map(async ({ key, slot, before }) => {
        const term = await this.#parts.opener.open(session, key, slot, before);
        if (this.#session !== session || !this.isValid()) return term.reader.stop();
        this.#terms.set(key, term);
        this.#parts.begin(term.reader);
        await term.reader.start().catch((error: unknown) => {
          this.#drop(key);
          throw error;
        });
      }),
    );
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    return taken.some(({ slot }) => slot.base !== slot.epoch);
  }

  #startDrain(key: string): void {
    const term = this.#terms.get(key);
    if (term === undefined || term.draining) return;
    term.draining = true;
    term.reader.drain();
    this.checkDrained();
  }

  #drop(key: string): void {
    const term = this.#terms.get(key);
    if (term === undefined) return;
    this.#terms.delete(key);
    term.reader.stop();
    this.#parts.end(term.reader);
  }

  #dropAll(): void {
    this.#validUntilMs = 0;
    for (const key of Array.from(this.#terms.keys())) this.#drop(key);
    this.#loop.wake();
  }

  #publishHint({ nc }: Session): void {
    trySend(() => nc.publish(this.#parts.hint, this.#me));
  }
}

/** What one member knows when it plans from the record. */
export interface MemberView {
  readonly me: string;
  readonly topics: readonly string[];
  /** Members whose heartbeat has not changed for a lease. */
  readonly dead: ReadonlySet<string>;
  /** Partitions that this member reads now, with their terms. */
  readonly running: ReadonlyMap<string, number>;
  /** Running partitions that this member is about to release. */
  readonly draining: ReadonlySet<string>;
  /** Terms whose consumer this member has created, with the start sequence. */
  readonly opened: ReadonlyMap<string, { readonly epoch: number; readonly at: number }>;
  /** Partitions that this member has released since the last write. */
  readonly released: ReadonlyMap<string, { readonly at: number; readonly done: readonly number[] }>;
  readonly leaving: boolean;
}

export interface Plan {
  readonly state: GroupState;
  /** True if the plan changes more than this member's heartbeat. */
  readonly changed: boolean;
  /** New terms of this member: the slot after and before. */
  readonly taken: readonly { readonly key: string; readonly slot: Slot; readonly before: Slot }[];
  /** Partitions to release once their last delivery is settled. */
  readonly shed: readonly string[];
  /** Partitions that this member no longer owns. */
  readonly lost: readonly string[];
}

/**
 * Plans the next version of the record: removes dead members and shares each topic evenly. All members compute the same
 * result from the same record.
 */
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

/** Applies what is known of a slot: its owner is gone, or this member released or opened it. */
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

/** Starts a new term. A consumer that was never read is reused; any other may have unacknowledged messages. */
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
  /** Releases a slot that this member owns but does not read. */
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
    // A slot that is not read has nothing to drain, so no later delivery would release it.
    if (running.has(key)) shed.push(key);
    else free(key, slot);
  }
  // This member owns the slot but lost the connection or the consumer: start a new term.
  for (const [key, slot] of staying.slice(0, target)) if (!running.has(key)) take(key, slot);
  const unowned = ofTopic.filter(([key, slot]) => slot.owner === null && !released.has(key));
  for (const [key, slot] of unowned.slice(0, Math.max(0, target - mine.length))) take(key, slot);
}

/** Computes this member's share of a topic. Which members get one more than the others differs by topic. */
function computeShare(
  me: string,
  topic: string,
  members: ReadonlyMap<string, Member>,
  count: number,
): number {
  const able = [...members].flatMap(([id, member]) => (member.topics.includes(topic) ? [id] : [])).sort();
  const rank = (able.indexOf(me) + laneFor(topic)) % able.length;
  return Math.floor(count / able.length) + (rank < count % able.length ? 1 : 0);
}

function byPartition([a]: [string, Slot], [b]: [string, Slot]): number {
  return readSlotKey(a).partition - readSlotKey(b).partition;
}

function hasChanged(before: GroupState, after: GroupState, me: string): boolean {
  const withoutBeat = (state: GroupState): string =>
    JSON.stringify({ ...state, members: { ...state.members, [me]: state.members[me]?.topics } });
  return withoutBeat(before) !== withoutBeat(after);
}
