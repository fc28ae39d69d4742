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
  type Lag,
  type PlannedGroup,
  type PublishOptions,
  type PublishOutcome,
  type Subscription,
  type TopicRequest,
  type Transport,
} from "../transport/index.ts";
import { MemoryGroup } from "./memory-group.ts";

export interface MemoryTransportOptions {
  /** Keeps published messages in `published` and for late subscribers. Default true. */
  readonly record?: boolean;
  /** Replaces single capabilities. Default none. */
  readonly capabilities?: Partial<Capabilities>;
  /** Gives deliveries an `ackWith` that runs this statement in the consumer's transaction. Default none. */
  readonly ackStatement?: Statement;
}

export interface MemoryDeadLetter {
  readonly message: Message;
  /** The body as a broker would store it, or the bytes that `putForeign` published. */
  readonly body: Uint8Array;
  readonly note: DeadLetterNote;
}

type FailedOutcome = Exclude<PublishOutcome["kind"], "published">;

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

/** A transport inside the process for tests: order by key, competing members, delays, and switches for faults. */
export class MemoryTransport implements Transport {
  readonly name = "memory";
  readonly capabilities: Capabilities;
  /** All accepted messages in order, unless `record` is false. */
  readonly published: Message[] = [];
  /** The dead letters of consumers with their notes, unless `record` is false. */
  readonly deadLetters: MemoryDeadLetter[] = [];
  /** Delay in milliseconds before each answer to a publish. Default 0. */
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
      reportsLag: true,
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
      return batch.map(() => ({ kind: "unreachable", error: unreachableError("the caller gave up") }));
    if (this.#hanging) return this.#publishUnanswered(batch, signal);
    return batch.map((message) => this.#accept(message));
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

  /** Does not accept the next `count` messages and returns this outcome for each. */
  failNext(count: number, outcome: FailedOutcome): void {
    for (let i = 0; i < count; i++) this.#failures.push(outcome);
  }

  /** Makes publishing unreachable. Nothing is delivered, and nothing can be settled, until `comeUp`. */
  goDown(): void {
    this.#down = true;
    for (const group of this.#groups.values()) group.halt(true);
  }

  /** Ends the effect of `goDown` and `hang`. */
  comeUp(): void {
    this.#down = false;
    this.#hanging = false;
    for (const group of this.#groups.values()) group.halt(false);
  }

  /** Leaves each publish unanswered until its signal is aborted; its messages are then unknown. */
  hang(): void {
    this.#hanging = true;
  }

  /** Revokes all unsettled deliveries of a group, as a lost lease would. */
  revokeDeliveries(group: string): void {
    for (const one of this.#findGroups(group)) one.revokeAll();
  }

  /** Returns the number of unsettled messages of a group, including those in flight. */
  backlog(group: string): number {
    return this.#findGroups(group).reduce((sum, one) => sum + one.backlog, 0);
  }

  /** Reports each group that ever subscribed, all its topics together. */
  async lags(groups: readonly PlannedGroup[]): Promise<readonly Lag[]> {
    if (this.#down) throw unreachableError();
    return groups.flatMap(({ service, group }) => {
      const waiting = this.#groups.get(groupId(service, group))?.backlog;
      if (waiting === undefined) return [];
      return [{ group, topic: null, waiting, oldestAgeSeconds: waiting === 0 ? 0 : ("unknown" as const) }];
    });
  }

  /** Publishes bytes to the topic as other software would. */
  putForeign(topic: string, body: Uint8Array): void {
    const { message, flaw } = fromWire({ body, headers: {}, topic, key: null });
    for (const group of this.#routes.get(topic) ?? []) group.add(message, { body, flaw });
  }

  #accept(message: Message): PublishOutcome {
    const failure = this.#failures.length > 0 ? this.#failures.shift() : undefined;
    if (failure !== undefined) return { kind: failure, error: new Error(`scripted outcome "${failure}"`) };
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
    // A UTF-16 unit takes at most three bytes in UTF-8, so the exact count is seldom needed.
    if (data.length * 3 <= maxBytes || Buffer.byteLength(data) <= maxBytes) return undefined;
    return new SagaboxError("PAYLOAD_TOO_LARGE", `The data takes more than ${maxBytes} bytes.`);
  }

  #group({ group: name, service, ordered }: Subscription): MemoryGroup {
    const id = groupId(service, name);
    const known = this.#groups.get(id);
    if (known !== undefined) return known;
    const saveDeadLetter = (message: Message, body: Uint8Array | undefined, note: DeadLetterNote): void =>
      void this.deadLetters.push({ message, note, body: body ?? toWire(message).body });
    const group = new MemoryGroup({
      name,
      ordered,
      ackStatement: this.#ackStatement,
      ...(this.#record ? { saveDeadLetter } : {}),
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
    const replays = typeof from === "object" || from === "beginning";
    for (const message of replays ? earlier : (this.#unrouted.get(topic) ?? [])) group.add(message);
    this.#unrouted.delete(topic);
    if (groups === undefined) this.#routes.set(topic, new Set([group]));
    else groups.add(group);
  }
}

function isAtOrAfter({ writtenAt }: Message, from: TopicRequest["from"]): boolean {
  return typeof from !== "object" || Date.parse(writtenAt) >= from.time.getTime();
}

function unreachableError(why = "it is closed, or the test has called goDown()"): SagaboxError {
  return new SagaboxError("TRANSPORT_UNREACHABLE", `The memory transport does not answer: ${why}.`);
}

function groupId(service: string, group: string): string {
  return `${service}\n${group}`;
}
