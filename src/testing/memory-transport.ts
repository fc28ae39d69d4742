import { SagaboxError } from "../errors/index.ts";
import type { Message } from "../message/index.ts";
import { sleep } from "../runtime/index.ts";
import type { Statement } from "../storage/index.ts";
import {
  assertCanBegin,
  fromWire,
  toWire,
  type Capabilities,
  type Consumption,
  type DeadLetterNote,
  type Delivery,
  type PublishOptions,
  type PublishOutcome,
  type Subscription,
  type TopicRequest,
  type Transport,
} from "../transport/index.ts";
import { MemoryGroup } from "./memory-group.ts";

export interface MemoryTransportOptions {
  /** Keep what was published, for looking at and for late subscribers. Off, a publish costs next to nothing. Default true. */
  readonly record?: boolean;
  readonly capabilities?: Partial<Capabilities>;
  /** Deliveries offer `ackWith`, which runs this statement in the consumer's transaction. */
  readonly ackStatement?: Statement;
}

export interface MemoryDeadLetter {
  readonly message: Message;
  /** The bytes as a broker would carry them, or as a stranger put them there. */
  readonly body: Uint8Array;
  readonly note: DeadLetterNote;
}

type FailedOutcome = Exclude<PublishOutcome["kind"], "published">;

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

/** A broker inside the process: order by key, competing members, delays, and switches for what can go wrong. */
export class MemoryTransport implements Transport {
  readonly name = "memory";
  readonly capabilities: Capabilities;
  /** Everything that was accepted, in order. */
  readonly published: Message[] = [];
  /** What consumers gave up, with the note they left. */
  readonly deadLetters: MemoryDeadLetter[] = [];
  /** Waits this long before each answer to a publish. */
  latencyMs = 0;

  readonly #record: boolean;
  readonly #ackStatement: Statement | undefined;
  readonly #groups = new Map<string, MemoryGroup>();
  readonly #routes = new Map<string, Set<MemoryGroup>>();
  readonly #unrouted = new Map<string, Message[]>();
  readonly #failures: FailedOutcome[] = [];
  #down = false;
  #closed = false;
  #hanging = false;

  constructor(options: MemoryTransportOptions = {}) {
    this.#record = options.record ?? true;
    this.#ackStatement = options.ackStatement;
    this.capabilities = {
      ordersByKey: true,
      ordersRetries: true,
      failsLaterOfKey: false,
      delaysRedelivery: true,
      keepsUnrouted: this.#record,
      rejectsUnrouted: false,
      replays: this.#record,
      replaysFromTime: this.#record,
      maxBytes: 1_048_576,
      ...options.capabilities,
    };
  }

  async open(): Promise<void> {
    if (this.#down) throw unreachableError();
    this.#closed = false;
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<readonly PublishOutcome[]> {
    if (this.latencyMs > 0) await sleep(this.latencyMs, signal);
    if (signal.aborted)
      return batch.map(() => ({ kind: "unreachable", error: unreachableError("given up") }));
    if (this.#hanging) return this.#publishUnanswered(batch, signal);
    return batch.map((message) => this.#take(message));
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    if (this.#down) throw unreachableError();
    assertCanBegin(this, subscription.topics);
    const group = this.#group(subscription);
    for (const { topic, from } of subscription.topics) this.#route(topic, from, group);
    return group.join(subscription, receive);
  }

  async close(): Promise<void> {
    this.#closed = true;
    for (const group of this.#groups.values()) await group.closeAll();
  }

  /** The next `count` messages are not taken but answered with this outcome. */
  failNext(count: number, outcome: FailedOutcome): void {
    for (let i = 0; i < count; i++) this.#failures.push(outcome);
  }

  /** Publishing is unreachable, nothing is delivered, nothing can be settled. */
  goDown(): void {
    this.#down = true;
    for (const group of this.#groups.values()) group.halt(true);
  }

  comeUp(): void {
    this.#down = false;
    this.#hanging = false;
    for (const group of this.#groups.values()) group.halt(false);
  }

  /** From now on a publish is not answered; when its sender gives up, its messages are unknown. */
  hang(): void {
    this.#hanging = true;
  }

  /** Takes all unsettled deliveries of a group away from their members, as a lost lease would. */
  revokeDeliveries(group: string): void {
    for (const one of this.#findGroups(group)) one.revokeAll();
  }

  /** How many messages a group has not settled yet, the delivered ones included. */
  backlog(group: string): number {
    return this.#findGroups(group).reduce((sum, one) => sum + one.backlog, 0);
  }

  /** Bytes that somebody else put into the topic. */
  putForeign(topic: string, body: Uint8Array): void {
    const { message, flaw } = fromWire({ body, headers: {}, topic, key: null });
    for (const group of this.#routes.get(topic) ?? []) group.add(message, { body, flaw });
  }

  #take(message: Message): PublishOutcome {
    const failure = this.#failures.length > 0 ? this.#failures.shift() : undefined;
    if (failure !== undefined) return { kind: failure, error: new Error(`told to answer "${failure}"`) };
    if (this.#down || this.#closed) return { kind: "unreachable", error: unreachableError() };
    const tooLarge = this.#checkSize(message);
    if (tooLarge !== undefined) return { kind: "refused", error: tooLarge };
    if (this.#record) this.published.push(message);
    const groups = this.#routes.get(message.topic);
    if (groups !== undefined) for (const group of groups) group.add(message);
    else if (this.#record) this.#keep(message);
    return PUBLISHED;
  }

  #publishUnanswered(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const unknown = { kind: "unknown", error: new Error("no answer") } as const;
    return new Promise((resolve) => {
      const giveUp = (): void => resolve(batch.map(() => unknown));
      if (signal.aborted) giveUp();
      else signal.addEventListener("abort", giveUp, { once: true });
    });
  }

  #keep(message: Message): void {
    const kept = this.#unrouted.get(message.topic);
    if (kept === undefined) this.#unrouted.set(message.topic, [message]);
    else kept.push(message);
  }

  #checkSize({ data }: Message): SagaboxError | undefined {
    const { maxBytes } = this.capabilities;
    // A letter takes three bytes at most, so the exact count is seldom needed.
    if (data.length * 3 <= maxBytes || Buffer.byteLength(data) <= maxBytes) return undefined;
    return new SagaboxError("PAYLOAD_TOO_LARGE", `The data takes more than ${maxBytes} bytes.`);
  }

  #group({ group: name, service, ordered }: Subscription): MemoryGroup {
    const id = `${service}\n${name}`;
    const known = this.#groups.get(id);
    if (known !== undefined) return known;
    const bury = (message: Message, body: Uint8Array | undefined, note: DeadLetterNote): void =>
      void this.deadLetters.push({ message, note, body: body ?? toWire(message).body });
    const group = new MemoryGroup({
      name,
      ordered,
      ackStatement: this.#ackStatement,
      ...(this.#record ? { bury } : {}),
    });
    this.#groups.set(id, group);
    return group;
  }

  #findGroups(name: string): MemoryGroup[] {
    return [...this.#groups.values()].filter((group) => group.name === name);
  }

  #route(topic: string, from: TopicRequest["from"], group: MemoryGroup): void {
    const groups = this.#routes.get(topic);
    if (groups?.has(group) === true) return;
    const earlier = this.published.filter((message) => message.topic === topic && isAtOrAfter(message, from));
    const asked = typeof from === "object" || from === "beginning";
    for (const message of asked ? earlier : (this.#unrouted.get(topic) ?? [])) group.add(message);
    this.#unrouted.delete(topic);
    if (groups === undefined) this.#routes.set(topic, new Set([group]));
    else groups.add(group);
  }
}

function isAtOrAfter({ writtenAt }: Message, from: TopicRequest["from"]): boolean {
  return typeof from !== "object" || Date.parse(writtenAt) >= from.time.getTime();
}

function unreachableError(why = "it is closed, or was told to be down"): SagaboxError {
  return new SagaboxError("TRANSPORT_UNREACHABLE", `The memory transport does not answer: ${why}.`);
}
