import type { Message, MessageKind } from "../message/index.ts";
import { randomToken, sleep, systemClock, withDeadline } from "../runtime/index.ts";
import type { Consumption, Delivery, PublishOutcome, TopicRequest, Transport } from "../transport/index.ts";

/** A broker with nothing in it that matters, the processes that use it, and what a test can do to it from outside. */
export interface TransportUnderTest {
  readonly transport: Transport;
  /** Another process at the same broker; the same transport where the broker lives inside it. */
  readonly another: () => Promise<Transport>;
  /** Ends that process without a good-bye. Left out where a process cannot die alone. */
  readonly abandon?: (transport: Transport) => void;
  /** Breaks every connection there is; new ones may be made at once. */
  readonly cutConnections?: () => Promise<void> | void;
  /** Puts bytes into a topic as somebody would who knows nothing of sagabox. The topic has been subscribed to. */
  readonly putForeign?: (topic: string, body: Uint8Array) => Promise<void>;
  /** What lies among the broker's own dead letters of this topic, with the headers as texts. */
  readonly deadLetters?: (topic: string) => Promise<readonly BrokerDeadLetter[]>;
  /** Closes everything, the abandoned ones too. */
  readonly close: () => Promise<void>;
}

/** What a test of a transport may leave out. */
export type Hook = "abandon" | "cutConnections" | "putForeign" | "deadLetters";

export interface BrokerDeadLetter {
  readonly body: Uint8Array;
  readonly headers: Readonly<Record<string, string>>;
}

export interface MemberOptions {
  readonly group?: string;
  readonly service?: string;
  readonly topic?: string;
  readonly kind?: MessageKind;
  readonly from?: TopicRequest["from"];
  readonly prefetch?: number;
  readonly ordered?: boolean;
  readonly transport?: Transport;
  /** Called with each delivery as it arrives. Default: keep it unsettled. */
  readonly receive?: (delivery: Delivery) => unknown;
}

const MAX_WAIT_MS = 15_000;

/** What a case plays on. Topic and groups are its own, so that a broker may be shared by many. */
export class ExerciseHarness {
  readonly topic: string;
  readonly #name = randomToken()
    .replaceAll(/[^a-zA-Z0-9]/g, "")
    .slice(0, 10);
  readonly #underTest: TransportUnderTest;
  #count = 0;

  constructor(under: TransportUnderTest) {
    this.#underTest = under;
    this.topic = `exercise.${this.#name}`;
  }

  get transport(): Transport {
    return this.#underTest.transport;
  }

  openAnother(): Promise<Transport> {
    return this.#underTest.another();
  }

  abandon(transport: Transport): void {
    this.#hook("abandon")(transport);
  }

  async cutConnections(): Promise<void> {
    await this.#hook("cutConnections")();
  }

  async putForeign(body: Uint8Array): Promise<void> {
    await this.#hook("putForeign")(this.topic, body);
  }

  /** As soon as there are so many. */
  async deadLetters(count: number): Promise<readonly BrokerDeadLetter[]> {
    const look = this.#hook("deadLetters");
    const endsMs = systemClock.monotonicMs() + MAX_WAIT_MS;
    let found = await look(this.topic);
    while (found.length < count && systemClock.monotonicMs() < endsMs) {
      await sleep(50);
      found = await look(this.topic);
    }
    return found;
  }

  message(change: Partial<Message> = {}): Message {
    this.#count += 1;
    const id = change.id ?? String(this.#count);
    return {
      kind: "event",
      type: "exercise.happened",
      schemaVersion: 1,
      topic: this.topic,
      key: null,
      data: "{}",
      headers: {},
      correlationId: `c-${id}`,
      causationId: null,
      traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
      sagaId: null,
      aggregateType: null,
      aggregateId: null,
      source: "exercise",
      target: null,
      priority: 5,
      writtenAt: "2026-01-02T03:04:05.678901Z",
      expiresAt: null,
      ...change,
      id: `${this.#name}-${id}`,
    };
  }

  /** The name a test gave, from the id that was sent. */
  readName(delivery: Delivery): string {
    return delivery.message.id.slice(this.#name.length + 1);
  }

  async publish(...messages: readonly Message[]): Promise<readonly PublishOutcome[]> {
    return this.transport.publish(messages, { signal: new AbortController().signal });
  }

  async addMember(wishes: MemberOptions = {}): Promise<ExerciseMember> {
    const member = new ExerciseMember(this, wishes.receive);
    const { topic = this.topic, from = "now", kind = "event" } = wishes;
    const topics = [{ topic, kind, from }];
    const group = `${this.#name}-${wishes.group ?? "group"}`;
    const subscription = {
      group,
      topics,
      prefetch: wishes.prefetch ?? 10,
      worker: randomToken().slice(0, 8),
      service: wishes.service ?? "exercise",
      ordered: wishes.ordered ?? true,
    };
    const transport = wishes.transport ?? this.transport;
    member.consumption = await transport.subscribe(subscription, (delivery) => member.onDelivery(delivery));
    return member;
  }

  /** Sends them again, as the outbox does, until the broker has said that it has them. */
  async publishUntilAccepted(...messages: readonly Message[]): Promise<void> {
    const endsMs = systemClock.monotonicMs() + MAX_WAIT_MS;
    let left = messages;
    while (left.length > 0) {
      const outcomes = await this.publish(...left);
      const failed = outcomes.find(({ kind }) => kind !== "published");
      if (failed === undefined) return;
      if (systemClock.monotonicMs() > endsMs) throw new Error(`still ${failed.kind} after ${MAX_WAIT_MS} ms`);
      left = left.filter((_, n) => outcomes[n]?.kind !== "published");
      await sleep(20);
    }
  }

  /** For what more than one member has a part in. */
  async waitUntil(condition: () => boolean): Promise<void> {
    const endsMs = systemClock.monotonicMs() + MAX_WAIT_MS;
    while (!condition() && systemClock.monotonicMs() < endsMs) await sleep(10);
  }

  #hook<H extends Hook>(name: H): NonNullable<TransportUnderTest[H]> {
    const hook = this.#underTest[name];
    if (hook === undefined) throw new Error(`The test offers "${name}", but its transport comes without it.`);
    return hook;
  }
}

export class ExerciseMember {
  readonly received: Delivery[] = [];
  consumption: Consumption | undefined;
  readonly #harness: ExerciseHarness;
  readonly #receive: ((delivery: Delivery) => unknown) | undefined;
  #changed: (() => void)[] = [];

  constructor(stage: ExerciseHarness, receive?: (delivery: Delivery) => unknown) {
    this.#harness = stage;
    this.#receive = receive;
  }

  get names(): string[] {
    return this.received.map((delivery) => this.#harness.readName(delivery));
  }

  onDelivery(delivery: Delivery): void {
    this.received.push(delivery);
    this.#receive?.(delivery);
    for (const wake of this.#changed.splice(0)) wake();
  }

  /** The first `count` deliveries, as soon as there are so many. */
  async waitForDeliveries(count: number): Promise<Delivery[]> {
    await this.waitUntil(() => this.received.length >= count, `${count} deliveries`);
    return this.received.slice(0, count);
  }

  /** Looks after each delivery whether it is so. */
  async waitUntil(condition: () => boolean, wanted = "what was waited for"): Promise<void> {
    const wait = async (): Promise<void> => {
      while (!condition()) await new Promise<void>((resolve) => this.#changed.push(resolve));
    };
    const giveUp = (): never => {
      const came = `${this.received.length} deliveries came: ${this.names.join(", ")}`;
      throw new Error(`${wanted} did not come within ${MAX_WAIT_MS} ms; ${came}`);
    };
    await withDeadline(wait(), MAX_WAIT_MS, giveUp);
  }

  async close(): Promise<void> {
    await this.consumption?.close();
  }
}
