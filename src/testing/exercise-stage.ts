import type { Message } from "../message/index.ts";
import { randomToken, withDeadline } from "../runtime/index.ts";
import type { Consumption, Delivery, PublishOutcome, TopicRequest, Transport } from "../transport/index.ts";

/** A broker with nothing in it that matters, and the processes that use it. */
export interface TransportUnderTest {
  readonly transport: Transport;
  /** Another process at the same broker; the same transport where the broker lives inside it. */
  readonly another: () => Promise<Transport>;
  /** Ends that process without a good-bye. Left out where a process cannot die alone. */
  readonly abandon?: (transport: Transport) => void;
  /** Closes everything, the abandoned ones too. */
  readonly close: () => Promise<void>;
}

export interface MemberWishes {
  readonly group?: string;
  readonly topic?: string;
  readonly from?: TopicRequest["from"];
  readonly prefetch?: number;
  readonly transport?: Transport;
  /** Called with each delivery as it arrives. Default: keep it unsettled. */
  readonly receive?: (delivery: Delivery) => unknown;
}

/** What a case plays on. Topic and groups are its own, so that a broker may be shared by many. */
export class Stage {
  readonly topic: string;
  readonly #name = randomToken()
    .replaceAll(/[^a-zA-Z0-9]/g, "")
    .slice(0, 10);
  readonly #under: TransportUnderTest;
  #count = 0;

  constructor(under: TransportUnderTest) {
    this.#under = under;
    this.topic = `exercise.${this.#name}`;
  }

  get transport(): Transport {
    return this.#under.transport;
  }

  another(): Promise<Transport> {
    return this.#under.another();
  }

  abandon(transport: Transport): void {
    this.#under.abandon?.(transport);
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
  nameOf(delivery: Delivery): string {
    return delivery.message.id.slice(this.#name.length + 1);
  }

  async publish(...messages: readonly Message[]): Promise<readonly PublishOutcome[]> {
    return this.transport.publish(messages, { signal: new AbortController().signal });
  }

  async member(wishes: MemberWishes = {}): Promise<ExerciseMember> {
    const member = new ExerciseMember(this, wishes.receive);
    const { topic = this.topic, from = "now" } = wishes;
    const topics = [{ topic, kind: "event" as const, from }];
    const group = `${this.#name}-${wishes.group ?? "group"}`;
    const subscription = {
      group,
      topics,
      prefetch: wishes.prefetch ?? 10,
      worker: randomToken().slice(0, 8),
      service: "exercise",
      ordered: true,
    };
    const transport = wishes.transport ?? this.transport;
    member.consumption = await transport.subscribe(subscription, (delivery) => member.take(delivery));
    return member;
  }
}

const PATIENCE_MS = 15_000;

export class ExerciseMember {
  readonly received: Delivery[] = [];
  consumption: Consumption | undefined;
  readonly #stage: Stage;
  readonly #receive: ((delivery: Delivery) => unknown) | undefined;
  #changed: (() => void)[] = [];

  constructor(stage: Stage, receive?: (delivery: Delivery) => unknown) {
    this.#stage = stage;
    this.#receive = receive;
  }

  get names(): string[] {
    return this.received.map((delivery) => this.#stage.nameOf(delivery));
  }

  take(delivery: Delivery): void {
    this.received.push(delivery);
    this.#receive?.(delivery);
    for (const wake of this.#changed.splice(0)) wake();
  }

  /** The first `count` deliveries, as soon as there are so many. */
  async got(count: number): Promise<Delivery[]> {
    const give = (): never => {
      throw new Error(`only ${this.received.length} of ${count} deliveries came: ${this.names.join(", ")}`);
    };
    await withDeadline(this.#until(count), PATIENCE_MS, give);
    return this.received.slice(0, count);
  }

  async close(): Promise<void> {
    await this.consumption?.close();
  }

  async #until(count: number): Promise<void> {
    while (this.received.length < count) await new Promise<void>((resolve) => this.#changed.push(resolve));
  }
}
