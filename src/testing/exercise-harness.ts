import type { Message, MessageKind } from "../message/index.ts";
import { randomToken, sleep, systemClock, withDeadline } from "../runtime/index.ts";
import type {
  Capabilities,
  Consumption,
  Delivery,
  Lag,
  PublishOutcome,
  TopicRequest,
  Transport,
} from "../transport/index.ts";

/** A transport on a broker for tests, with hooks that cause faults from outside. */
export interface TransportUnderTest {
  readonly transport: Transport;
  /** Opens a transport of another process at the same broker; for a broker inside the transport, returns the same. */
  readonly another: () => Promise<Transport>;
  /** Ends a process without closing its transport. Left out if a process cannot crash alone. */
  readonly abandon?: (transport: Transport) => void;
  /** Breaks every open connection. New ones can be opened at once. */
  readonly cutConnections?: () => Promise<void> | void;
  /** Publishes bytes to a topic as other software would. The topic has a subscriber. */
  readonly putForeign?: (topic: string, body: Uint8Array) => Promise<void>;
  /** Reads the broker's own dead letters of a topic, with the headers as strings. */
  readonly deadLetters?: (topic: string) => Promise<readonly BrokerDeadLetter[]>;
  /** Closes all transports, including abandoned ones. */
  readonly close: () => Promise<void>;
}

/** The optional hooks of a transport under test. */
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
  /** Called with each delivery. By default a delivery stays unsettled. */
  readonly receive?: (delivery: Delivery) => unknown;
}

const MAX_WAIT_MS = 15_000;

/** Runs one case against a transport. Topic and groups are unique, so that many cases can share a broker. */
export class ExerciseHarness {
  readonly topic: string;
  readonly #name = randomToken()
    .replaceAll(/[^a-zA-Z0-9]/g, "")
    .slice(0, 10);
  readonly #underTest: TransportUnderTest;
  #count = 0;

  constructor(underTest: TransportUnderTest) {
    this.#underTest = underTest;
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

  /** Waits for `count` dead letters and returns those found. */
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

  /** Returns the id that the case gave the message, without the harness's prefix. */
  readName(delivery: Delivery): string {
    return delivery.message.id.slice(this.#name.length + 1);
  }

  async publish(...messages: readonly Message[]): Promise<readonly PublishOutcome[]> {
    return this.transport.publish(messages, { signal: new AbortController().signal });
  }

  async addMember(options: MemberOptions = {}): Promise<ExerciseMember> {
    const member = new ExerciseMember(this, options.receive);
    const { topic = this.topic, from = "now", kind = "event" } = options;
    const topics = [{ topic, kind, from }];
    const group = `${this.#name}-${options.group ?? "group"}`;
    const subscription = {
      group,
      topics,
      prefetch: options.prefetch ?? 10,
      worker: randomToken().slice(0, 8),
      service: options.service ?? "exercise",
      ordered: options.ordered ?? true,
    };
    const transport = options.transport ?? this.transport;
    member.consumption = await transport.subscribe(subscription, (delivery) => member.onDelivery(delivery));
    return member;
  }

  /** Reports how far a group is behind on the topic of the case. Undefined if the transport does not know the group. */
  async readLag(group: string, ordered = true): Promise<Lag | undefined> {
    const topics = [{ topic: this.topic, kind: "event" }] as const;
    const planned = { service: "exercise", group: `${this.#name}-${group}`, ordered, topics };
    return (await this.transport.lags?.([planned]))?.find((lag) => lag.group === planned.group);
  }

  /** Reads the lag until it meets the condition, or until the time is over, and returns the last one. */
  async waitForLag(
    condition: (lag: Lag) => boolean,
    group: string,
    ordered?: boolean,
  ): Promise<Lag | undefined> {
    const endsMs = systemClock.monotonicMs() + MAX_WAIT_MS;
    for (;;) {
      const lag = await this.readLag(group, ordered);
      if ((lag !== undefined && condition(lag)) || systemClock.monotonicMs() > endsMs) return lag;
      await sleep(50);
    }
  }

  /** Publishes messages again, as the outbox does, until the broker has confirmed all of them. */
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

  /** Waits for a condition that involves several members. Does not fail; the case checks the result. */
  async waitUntil(condition: () => boolean): Promise<void> {
    const endsMs = systemClock.monotonicMs() + MAX_WAIT_MS;
    while (!condition() && systemClock.monotonicMs() < endsMs) await sleep(10);
  }

  #hook<H extends Hook>(name: H): NonNullable<TransportUnderTest[H]> {
    const hook = this.#underTest[name];
    if (hook === undefined) throw new Error(`The test offers "${name}", but its transport has no such hook.`);
    return hook;
  }
}

export class ExerciseMember {
  readonly received: Delivery[] = [];
  consumption: Consumption | undefined;
  readonly #harness: ExerciseHarness;
  readonly #receive: ((delivery: Delivery) => unknown) | undefined;
  #changed: (() => void)[] = [];

  constructor(harness: ExerciseHarness, receive?: (delivery: Delivery) => unknown) {
    this.#harness = harness;
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

  /** Waits for `count` deliveries and returns the first ones. */
  async waitForDeliveries(count: number): Promise<Delivery[]> {
    await this.waitUntil(() => this.received.length >= count, `${count} deliveries`);
    return this.received.slice(0, count);
  }

  /** Checks the condition after each delivery. Throws if it is not met in time. */
  async waitUntil(condition: () => boolean, wanted = "the expected deliveries"): Promise<void> {
    const wait = async (): Promise<void> => {
      while (!condition()) await new Promise<void>((resolve) => this.#changed.push(resolve));
    };
    const giveUp = (): never => {
      const actual = `received ${this.received.length} deliveries: ${this.names.join(", ")}`;
      throw new Error(`expected ${wanted} within ${MAX_WAIT_MS} ms; ${actual}`);
    };
    await withDeadline(wait(), MAX_WAIT_MS, giveUp);
  }

  async close(): Promise<void> {
    await this.consumption?.close();
  }
}

export interface ExerciseCase {
  readonly run: (harness: ExerciseHarness) => Promise<void>;
  /** Capabilities the transport must have, and hooks its test must offer, for this case to run. */
  readonly needs?: readonly (keyof Capabilities | Hook)[];
  /** Capabilities the transport must not have. */
  readonly unless?: readonly (keyof Capabilities)[];
}

/** Cases by title. */
export type ExerciseCases = Readonly<Record<string, ExerciseCase>>;

/** How long to wait before concluding that no further delivery arrives. */
export const QUIET_MS = 150;

export const FAILED_RETRY = { countsAsAttempt: true, error: "scripted failure" };

export const expectedOrder = (key: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${key}${n}`);

export const filterKey = (names: readonly string[], key: string): string[] =>
  names.filter((name) => name.startsWith(key));

/** Keeps the first occurrence of each name: after a fault duplicates are allowed, but disorder is not. */
export const withoutRepeats = (names: readonly string[]): string[] => [...new Set(names)];

/** Creates batches with one message of each key. */
export const createRounds = (harness: ExerciseHarness, keys: readonly string[], count: number): Message[][] =>
  expectedOrder("", count).map((n) => keys.map((key) => harness.message({ id: `${key}${n}`, key })));

export const ackAll = (delivery: Delivery): unknown => delivery.ack();
