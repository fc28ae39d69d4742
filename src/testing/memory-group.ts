import { setMaxListeners } from "node:events";
import { SagaboxError } from "../errors/index.ts";
import type { Message } from "../message/index.ts";
import { after, type CancelTimer, systemClock } from "../runtime/index.ts";
import type { Param, Statement } from "../storage/index.ts";
import type {
  Consumption,
  DeadLetterNote,
  Delivery,
  RetryOptions,
  Subscription,
} from "../transport/index.ts";

/** One consumer group: a queue of messages per key, delivered to the members that compete for them. */
export class MemoryGroup {
  readonly properties: GroupProperties;
  readonly #queues = new Map<string, KeyQueue>();
  readonly #members: Member[] = [];
  readonly #timers = new Set<CancelTimer>();
  readonly #ready: KeyQueue[] = [];
  #next = 0;
  #seq = 0;
  #halted = false;
  #isScheduled = false;
  backlog = 0;

  constructor(properties: GroupProperties) {
    this.properties = properties;
  }

  get name(): string {
    return this.properties.name;
  }

  get halted(): boolean {
    return this.#halted;
  }

  add(message: Message, foreign?: ForeignMessage): void {
    const queue = this.#findQueue(message);
    queue.waiting.push({ message, foreign, seq: this.#seq++, attempt: 1, dueMs: 0 });
    this.backlog += 1;
    this.#enqueue(queue);
  }

  join(subscription: Subscription, receive: (delivery: Delivery) => void): Consumption {
    const member: Member = {
      prefetch: subscription.prefetch,
      receive,
      deliveries: new Set(),
      parked: [],
      paused: false,
      revocation: createRevocation(),
    };
    this.#members.push(member);
    this.#scheduleDispatch();
    return {
      pause: async () => void (member.paused = true),
      close: async () => this.#leave(member),
      health: () => (this.#halted ? { ok: false, detail: "the test has called goDown()" } : { ok: true }),
    };
  }

  halt(halted: boolean): void {
    this.#halted = halted;
    if (!halted) this.#scheduleDispatch();
  }

  revokeAll(): void {
    for (const member of this.#members) abandonAll(member);
  }

  async closeAll(): Promise<void> {
    for (const member of this.#members.splice(0)) abandonAll(member);
    for (const cancel of this.#timers) cancel();
    this.#timers.clear();
  }

  /** Called by a delivery when it is settled. `back` returns its message to its position in the queue. */
  settle(delivery: MemoryDelivery, back?: RetryOptions | "unchanged"): void {
    const { entry, queue, member } = delivery;
    member.deliveries.delete(delivery);
    queue.unsettled -= 1;
    if (back === undefined) this.backlog -= 1;
    else this.#putBack(queue, entry, back);
    if (queue.unsettled === 0) {
      queue.owner = undefined;
      queue.holding = false;
    }
    for (const parked of member.parked.splice(0)) this.#enqueue(parked);
    if (queue.waiting.length > 0) this.#enqueue(queue);
    else if (queue.unsettled === 0 && queue.key !== null) this.#queues.delete(queue.key);
    this.#scheduleDispatch();
  }

  #putBack(queue: KeyQueue, entry: Entry, back: RetryOptions | "unchanged"): void {
    if (back !== "unchanged") {
      if (back.countsAsAttempt) entry.attempt += 1;
      entry.dueMs = systemClock.monotonicMs() + back.delayMs;
      queue.holding = true;
    }
    const index = queue.waiting.findIndex((other) => other.seq > entry.seq);
    queue.waiting.splice(index < 0 ? queue.waiting.length : index, 0, entry);
  }

  #leave(member: Member): void {
    const index = this.#members.indexOf(member);
    if (index < 0) return;
    this.#members.splice(index, 1);
    abandonAll(member);
  }

  #findQueue(message: Message): KeyQueue {
    if (message.key === null || !this.properties.ordered) return createQueue(null);
    const key = `${message.topic}\n${message.key}`;
    const known = this.#queues.get(key);
    if (known !== undefined) return known;
    const queue = createQueue(key);
    this.#queues.set(key, queue);
    return queue;
  }

  #enqueue(queue: KeyQueue): void {
    if (queue.queued) return;
    queue.queued = true;
    this.#ready.push(queue);
    this.#scheduleDispatch();
  }

  #scheduleDispatch(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    queueMicrotask(() => {
      this.#isScheduled = false;
      this.#dispatch();
    });
  }

  // Delivers one message of each queue in turn, so that a long queue does not delay the others.
  #dispatch(): void {
    while (this.#next < this.#ready.length && !this.#halted) {
      const queue = this.#ready[this.#next];
      if (queue !== undefined && !this.#deliver(queue)) break;
      this.#next += 1;
    }
    if (this.#next > 1_000 || this.#next === this.#ready.length) {
      this.#ready.splice(0, this.#next);
      this.#next = 0;
    }
  }

  /** Returns false if no member has room, so that the queue keeps its position. */
  #deliver(queue: KeyQueue): boolean {
    const entry = queue.waiting[0];
    // After a retry the queue waits until its later deliveries are settled too. The last of them wakes it.
    if (entry === undefined || queue.holding) return !(queue.queued = false);
    const waitMs = entry.dueMs === 0 ? 0 : entry.dueMs - systemClock.monotonicMs();
    if (waitMs > 0) return this.#wakeLater(queue, waitMs);
    const member = queue.owner ?? this.#findLeastLoaded();
    if (member === undefined) return false;
    queue.queued = false;
    if (isFull(member)) return member.parked.push(queue) > 0;
    this.#deliverTo(queue, entry, member);
    if (queue.waiting.length > 0) this.#enqueue(queue);
    return true;
  }

  #deliverTo(queue: KeyQueue, entry: Entry, member: Member): void {
    queue.waiting.shift();
    queue.unsettled += 1;
    queue.owner = member;
    const delivery = new MemoryDelivery(this, queue, entry, member);
    member.deliveries.add(delivery);
    member.receive(delivery);
  }

  #wakeLater(queue: KeyQueue, waitMs: number): true {
    const cancel = after(waitMs, () => {
      this.#timers.delete(cancel);
      queue.queued = false;
      this.#enqueue(queue);
    });
    this.#timers.add(cancel);
    return true;
  }

  #findLeastLoaded(): Member | undefined {
    const open = this.#members.filter((member) => !isFull(member));
    return open.sort((a, b) => a.deliveries.size - b.deliveries.size)[0];
  }
}

// Abandoning a delivery removes it from the set, so the set is copied first.
function abandonAll(member: Member): void {
  Array.from(member.deliveries).forEach((delivery) => delivery.abandon());
  const { revocation } = member;
  member.revocation = createRevocation();
  revocation.abort();
}

// Every delivery in flight listens to this signal, so the limit of listeners is removed.
function createRevocation(): AbortController {
  const revocation = new AbortController();
  setMaxListeners(0, revocation.signal);
  return revocation;
}

function isFull(member: Member): boolean {
  return member.paused || member.deliveries.size >= member.prefetch;
}

function createQueue(key: string | null): KeyQueue {
  return { key, waiting: [], unsettled: 0, queued: false, holding: false, owner: undefined };
}

/** Properties that all members of a group share. */
interface GroupProperties {
  readonly name: string;
  readonly ordered: boolean;
  readonly ackStatement: Statement | undefined;
  readonly saveDeadLetter?: (message: Message, body: Uint8Array | undefined, note: DeadLetterNote) => void;
}

/** Bytes that other software published, and why they are not a valid message, if so. */
interface ForeignMessage {
  readonly body: Uint8Array;
  readonly flaw: Error | undefined;
}

interface Entry {
  readonly message: Message;
  readonly foreign: ForeignMessage | undefined;
  readonly seq: number;
  attempt: number;
  dueMs: number;
}

/** The messages of one key, in order. A message without a key has its own queue. */
interface KeyQueue {
  readonly key: string | null;
  readonly waiting: Entry[];
  unsettled: number;
  queued: boolean;
  holding: boolean;
  /** The member with unsettled messages of the queue, which gets the next ones too. */
  owner: Member | undefined;
}

interface Member {
  readonly prefetch: number;
  readonly receive: (delivery: Delivery) => void;
  readonly deliveries: Set<MemoryDelivery>;
  readonly parked: KeyQueue[];
  paused: boolean;
  /** Aborted when all deliveries of the member are revoked. Later deliveries get a new controller. */
  revocation: AbortController;
}

class MemoryDelivery implements Delivery {
  readonly attempt: number;
  readonly flaw?: Error;
  readonly deadLetter?: (note: DeadLetterNote) => Promise<void>;
  readonly ackWith?: { readonly statement: Statement; readonly params: readonly Param[] };
  readonly confirmAck?: () => void;
  readonly entry: Entry;
  readonly queue: KeyQueue;
  readonly member: Member;
  readonly #group: MemoryGroup;
  readonly #revocation: AbortController;
  #settled = false;
  #lost = false;

  constructor(group: MemoryGroup, queue: KeyQueue, entry: Entry, member: Member) {
    const { ackStatement, saveDeadLetter } = group.properties;
    this.#group = group;
    this.entry = entry;
    this.queue = queue;
    this.member = member;
    this.#revocation = member.revocation;
    this.attempt = entry.attempt;
    if (entry.foreign?.flaw !== undefined) this.flaw = entry.foreign.flaw;
    if (saveDeadLetter !== undefined)
      this.deadLetter = async (note) => this.#deadLetter(saveDeadLetter, note);
    if (ackStatement !== undefined) {
      this.ackWith = { statement: ackStatement, params: [] };
      this.confirmAck = () => this.#settleOnce();
    }
  }

  get message(): Message {
    return this.entry.message;
  }

  get orderKey(): string | null {
    return this.queue.key;
  }

  get signal(): AbortSignal {
    return this.#revocation.signal;
  }

  async ack(): Promise<void> {
    this.#assertNotHalted();
    this.#settleOnce();
  }

  async retry(options: RetryOptions): Promise<void> {
    this.#assertNotHalted();
    this.#settleOnce(options);
  }

  async release(): Promise<void> {
    this.#assertNotHalted();
    this.#settleOnce("unchanged");
  }

  #deadLetter(saveDeadLetter: NonNullable<GroupProperties["saveDeadLetter"]>, note: DeadLetterNote): void {
    this.#assertNotHalted();
    if (this.#lost) return;
    saveDeadLetter(this.entry.message, this.entry.foreign?.body, note);
    this.#settleOnce();
  }

  abandon(): void {
    this.#settleOnce("unchanged");
    this.#lost = true;
  }

  #settleOnce(back?: RetryOptions | "unchanged"): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#group.settle(this, back);
  }

  #assertNotHalted(): void {
    if (!this.#group.halted) return;
    throw new SagaboxError(
      "TRANSPORT_UNREACHABLE",
      "The test has made the memory transport unreachable (goDown).",
    );
  }
}
