import { SagaboxError } from "../errors/index.ts";
import type { Message } from "../message/index.ts";
import type { Param, Statement } from "../storage/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../transport/index.ts";
import type { MemoryGroup } from "./memory-group.ts";

/** What is the same for all members of a group. */
export interface GroupTraits {
  readonly name: string;
  readonly ordered: boolean;
  readonly ackStatement: Statement | undefined;
  readonly bury?: (message: Message, body: Uint8Array | undefined, note: DeadLetterNote) => void;
}

/** What somebody else put there, and why it is no message of ours if it is none. */
export interface ForeignMessage {
  readonly body: Uint8Array;
  readonly flaw: Error | undefined;
}

export interface Entry {
  readonly message: Message;
  readonly foreign: ForeignMessage | undefined;
  readonly seq: number;
  attempt: number;
  dueMs: number;
}

/** The messages of one key, in order; a message without a key has a line of its own. */
export interface KeyQueue {
  readonly key: string | null;
  readonly waiting: Entry[];
  unsettled: number;
  queued: boolean;
  holding: boolean;
  /** Whoever holds unsettled messages of the line gets the next ones too. */
  owner: Member | undefined;
}

export interface Member {
  readonly prefetch: number;
  readonly receive: (delivery: Delivery) => void;
  readonly deliveries: Set<MemoryDelivery>;
  readonly parked: KeyQueue[];
  paused: boolean;
  /** Aborts when everything the member holds is taken away; what it is handed afterwards has another. */
  losing: AbortController;
}

export class MemoryDelivery implements Delivery {
  readonly attempt: number;
  readonly flaw?: Error;
  readonly deadLetter?: (note: DeadLetterNote) => Promise<void>;
  readonly ackWith?: { readonly statement: Statement; readonly params: readonly Param[] };
  readonly acked?: () => void;
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
      this.acked = () => this.#settleOnce();
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
