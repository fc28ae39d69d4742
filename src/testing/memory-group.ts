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

/** One consumer group: lines of messages, one line per key, handed out to the members that compete for them. */
export class MemoryGroup {
  readonly traits: GroupTraits;
  readonly #queues = new Map<string, KeyQueue>();
  readonly #members: Member[] = [];
  readonly #timers = new Set<CancelTimer>();
  readonly #ready: KeyQueue[] = [];
  #next = 0;
  #seq = 0;
  #halted = false;
  #pumping = false;
  backlog = 0;

  constructor(traits: GroupTraits) {
    this.traits = traits;
  }

  get name(): string {
    return this.traits.name;
  }

  get halted(): boolean {
    return this.#halted;
  }

  add(message: Message, foreign?: ForeignMessage): void {
    const line = this.#findQueue(message);
    line.waiting.push({ message, foreign, seq: this.#seq++, attempt: 1, dueMs: 0 });
    this.backlog += 1;
    this.#enqueue(line);
  }

  join(subscription: Subscription, receive: (delivery: Delivery) => void): Consumption {
    const member: Member = {
      prefetch: subscription.prefetch,
      receive,
      deliveries: new Set(),
      parked: [],
      paused: false,
      losing: createLossController(),
    };
    this.#members.push(member);
    this.#pumpSoon();
    return {
      pause: async () => void (member.paused = true),
      close: async () => this.#leave(member),
      health: () => (this.#halted ? { ok: false, detail: "told to be down" } : { ok: true }),
    };
  }

  halt(halted: boolean): void {
    this.#halted = halted;
    if (!halted) this.#pumpSoon();
  }

  revokeAll(): void {
    for (const member of this.#members) abandonAll(member);
  }

  async closeAll(): Promise<void> {
    for (const member of this.#members.splice(0)) abandonAll(member);
    for (const cancel of this.#timers) cancel();
    this.#timers.clear();
  }

  /** Called by a delivery when it is settled; `back` puts its message in its old place. */
  settle(delivery: MemoryDelivery, back?: RetryOptions | "unharmed"): void {
    const { entry, line, member } = delivery;
    member.deliveries.delete(delivery);
    line.unsettled -= 1;
    if (back === undefined) this.backlog -= 1;
    else this.#putBack(line, entry, back);
    if (line.unsettled === 0) {
      line.owner = undefined;
      line.holding = false;
    }
    for (const parked of member.parked.splice(0)) this.#enqueue(parked);
    if (line.waiting.length > 0) this.#enqueue(line);
    else if (line.unsettled === 0 && line.key !== null) this.#queues.delete(line.key);
    this.#pumpSoon();
  }

  #putBack(line: KeyQueue, entry: Entry, back: RetryOptions | "unharmed"): void {
    if (back !== "unharmed") {
      if (back.charged) entry.attempt += 1;
      entry.dueMs = systemClock.monotonicMs() + back.delayMs;
      line.holding = true;
    }
    const place = line.waiting.findIndex((other) => other.seq > entry.seq);
    line.waiting.splice(place < 0 ? line.waiting.length : place, 0, entry);
  }

  #leave(member: Member): void {
    const index = this.#members.indexOf(member);
    if (index < 0) return;
    this.#members.splice(index, 1);
    abandonAll(member);
  }

  #findQueue(message: Message): KeyQueue {
    if (message.key === null || !this.traits.ordered) return createQueue(null);
    const key = `${message.topic}\n${message.key}`;
    const known = this.#queues.get(key);
    if (known !== undefined) return known;
    const line = createQueue(key);
    this.#queues.set(key, line);
    return line;
  }

  #enqueue(line: KeyQueue): void {
    if (line.queued) return;
    line.queued = true;
    this.#ready.push(line);
    this.#pumpSoon();
  }

  #pumpSoon(): void {
    if (this.#pumping) return;
    this.#pumping = true;
    queueMicrotask(() => {
      this.#pumping = false;
      this.#pump();
    });
  }

  // One message of each line in turn, so that a long line does not keep the others waiting.
  #pump(): void {
    while (this.#next < this.#ready.length && !this.#halted) {
      const line = this.#ready[this.#next];
      if (line !== undefined && !this.#deliver(line)) break;
      this.#next += 1;
    }
    if (this.#next > 1_000 || this.#next === this.#ready.length) {
      this.#ready.splice(0, this.#next);
      this.#next = 0;
    }
  }

  /** False when nobody has room, so that the line stays where it is. */
  #deliver(line: KeyQueue): boolean {
    const entry = line.waiting[0];
    // After a retry the line stands still until its later deliveries are back too: the last of them wakes it.
    if (entry === undefined || line.holding) return !(line.queued = false);
    const waitMs = entry.dueMs === 0 ? 0 : entry.dueMs - systemClock.monotonicMs();
    if (waitMs > 0) return this.#wakeLater(line, waitMs);
    const member = line.owner ?? this.#findLeastLoaded();
    if (member === undefined) return false;
    line.queued = false;
    if (isFull(member)) return member.parked.push(line) > 0;
    this.#deliverTo(line, entry, member);
    if (line.waiting.length > 0) this.#enqueue(line);
    return true;
  }

  #deliverTo(line: KeyQueue, entry: Entry, member: Member): void {
    line.waiting.shift();
    line.unsettled += 1;
    line.owner = member;
    const delivery = new MemoryDelivery(this, line, entry, member);
    member.deliveries.add(delivery);
    member.receive(delivery);
  }

  #wakeLater(line: KeyQueue, waitMs: number): true {
    const cancel = after(waitMs, () => {
      this.#timers.delete(cancel);
      line.queued = false;
      this.#enqueue(line);
    });
    this.#timers.add(cancel);
    return true;
  }

  #findLeastLoaded(): Member | undefined {
    const open = this.#members.filter((member) => !isFull(member));
    return open.sort((a, b) => a.deliveries.size - b.deliveries.size)[0];
  }
}

// Losing a delivery takes it out of the set, so the set is copied first.
function abandonAll(member: Member): void {
  Array.from(member.deliveries).forEach((delivery) => delivery.abandon());
  const { losing } = member;
  member.losing = createLossController();
  losing.abort();
}

// Heard by every delivery of the member that runs, however many those are.
function createLossController(): AbortController {
  const losing = new AbortController();
  setMaxListeners(0, losing.signal);
  return losing;
}

function isFull(member: Member): boolean {
  return member.paused || member.deliveries.size >= member.prefetch;
}

function createQueue(key: string | null): KeyQueue {
  return { key, waiting: [], unsettled: 0, queued: false, holding: false, owner: undefined };
}

/** What is the same for all members of a group. */
interface GroupTraits {
  readonly name: string;
  readonly ordered: boolean;
  readonly ackStatement: Statement | undefined;
  readonly bury?: (message: Message, body: Uint8Array | undefined, note: DeadLetterNote) => void;
}

/** What somebody else put there, and why it is no message of ours if it is none. */
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

/** The messages of one key, in order; a message without a key has a line of its own. */
interface KeyQueue {
  readonly key: string | null;
  readonly waiting: Entry[];
  unsettled: number;
  queued: boolean;
  holding: boolean;
  /** Whoever holds unsettled messages of the line gets the next ones too. */
  owner: Member | undefined;
}

interface Member {
  readonly prefetch: number;
  readonly receive: (delivery: Delivery) => void;
  readonly deliveries: Set<MemoryDelivery>;
  readonly parked: KeyQueue[];
  paused: boolean;
  /** Aborts when everything the member holds is taken away; what it is handed afterwards has another. */
  losing: AbortController;
}

class MemoryDelivery implements Delivery {
  readonly attempt: number;
  readonly flaw?: Error;
  readonly deadLetter?: (note: DeadLetterNote) => Promise<void>;
  readonly ackWith?: { readonly statement: Statement; readonly params: readonly Param[] };
  readonly confirmAck?: () => void;
  readonly entry: Entry;
  readonly line: KeyQueue;
  readonly member: Member;
  readonly #group: MemoryGroup;
  readonly #lossController: AbortController;
  #settled = false;
  #lost = false;

  constructor(group: MemoryGroup, line: KeyQueue, entry: Entry, member: Member) {
    const { ackStatement, bury } = group.traits;
    this.#group = group;
    this.entry = entry;
    this.line = line;
    this.member = member;
    this.#lossController = member.losing;
    this.attempt = entry.attempt;
    if (entry.foreign?.flaw !== undefined) this.flaw = entry.foreign.flaw;
    if (bury !== undefined) this.deadLetter = async (note) => this.#deadLetter(bury, note);
    if (ackStatement !== undefined) {
      this.ackWith = { statement: ackStatement, params: [] };
      this.confirmAck = () => this.#settleOnce();
    }
  }

  get message(): Message {
    return this.entry.message;
  }

  get orderKey(): string | null {
    return this.line.key;
  }

  get signal(): AbortSignal {
    return this.#lossController.signal;
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
    this.#settleOnce("unharmed");
  }

  #deadLetter(bury: NonNullable<GroupTraits["bury"]>, note: DeadLetterNote): void {
    this.#assertNotHalted();
    if (this.#lost) return;
    bury(this.entry.message, this.entry.foreign?.body, note);
    this.#settleOnce();
  }

  abandon(): void {
    this.#settleOnce("unharmed");
    this.#lost = true;
  }

  #settleOnce(back?: RetryOptions | "unharmed"): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#group.settle(this, back);
  }

  #assertNotHalted(): void {
    if (!this.#group.halted) return;
    throw new SagaboxError("TRANSPORT_UNREACHABLE", "The memory transport was told to be down.");
  }
}
