import { inject, onTestFinished } from "vitest";
import type { Message } from "../../../src/message/index.ts";
import { withDeadline } from "../../../src/runtime/index.ts";
import type { Consumption, Delivery, PublishOutcome, Transport } from "../../../src/transport/index.ts";
import { kafka, type KafkaOptions } from "../../../src/transports/kafka/index.ts";
import { RawTopic } from "./raw-topic.ts";
import { startKafka, type KafkaServer, type KafkaTestOptions } from "../../support/brokers/kafka-server.ts";

const found = inject("kafka");

/** True where there is no server to test with; the run says so by itself. */
export const missing = "missing" in found;
/** The server of the whole run. */
export const sharedUrl = "url" in found ? found.url : "";

export const rawTopic = (name: string): RawTopic => new RawTopic(sharedUrl, name);

let count = 0;
/** Topics and groups with a prefix of its own keep a test from all others. */
export const newPrefix = (): string => `t${process.pid}-${++count}.`;

/** A server for some tests, that may be killed. The test that starts it stops it. */
export async function ownServer(options: KafkaTestOptions = {}): Promise<KafkaServer> {
  const started = await startKafka(options);
  if ("missing" in started) throw new Error(started.missing);
  return started.server;
}

export function createTransport(options: Partial<KafkaOptions> = {}): Transport {
  const transport = kafka({
    brokers: [sharedUrl],
    prefix: newPrefix(),
    warn: () => undefined,
    ...options,
    topics: { partitions: 4, ...options.topics },
  });
  onTestFinished(() => transport.close());
  return transport;
}

export function publish(
  transport: Transport,
  ...batch: readonly Message[]
): Promise<readonly PublishOutcome[]> {
  return transport.publish(batch, { signal: AbortSignal.timeout(30_000) });
}

export interface MemberOptions {
  readonly topic?: string;
  readonly group?: string;
  readonly prefetch?: number;
  readonly from?: "now" | "beginning" | "unclaimed";
  readonly ordered?: boolean;
  readonly receive?: (delivery: Delivery) => unknown;
}

/** A member of a group that remembers what it got. */
export class Member {
  readonly received: Delivery[] = [];
  readonly #waiting = new Set<() => void>();
  readonly #receive: MemberOptions["receive"];
  consumption: Consumption | undefined;

  constructor(receive?: MemberOptions["receive"]) {
    this.#receive = receive;
  }

  static async of(transport: Transport, wishes: MemberOptions = {}): Promise<Member> {
    const member = new Member(wishes.receive);
    const { topic = "events.order.placed", group = "billing", from = "beginning" } = wishes;
    const { prefetch = 10, ordered = true } = wishes;
    member.consumption = await transport.subscribe(
      {
        group,
        topics: [{ topic, kind: "event", from }],
        prefetch,
        worker: "w",
        service: "shop",
        ordered,
      },
      (delivery) => member.#take(delivery),
    );
    return member;
  }

  get ids(): string[] {
    return this.received.map(({ message }) => message.id);
  }

  /** Waits until what was received satisfies the condition. */
  async until(
    condition: (received: readonly Delivery[]) => boolean,
    patienceMs = 30_000,
  ): Promise<Delivery[]> {
    const waiting = async (): Promise<void> => {
      while (!condition(this.received)) await new Promise<void>((resolve) => this.#waiting.add(resolve));
    };
    await withDeadline(waiting(), patienceMs, () => {
      throw new Error(`nothing came in time; received: ${this.ids.join(", ")}`);
    });
    return this.received;
  }

  got(wanted: number): Promise<Delivery[]> {
    return this.until((received) => received.length >= wanted);
  }

  #take(delivery: Delivery): void {
    this.received.push(delivery);
    this.#receive?.(delivery);
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}

export const ackAll = (delivery: Delivery): unknown => delivery.ack();

/** Looks again and again until it is so. */
export async function eventually(check: () => boolean, patienceMs = 20_000): Promise<void> {
  const endMs = Date.now() + patienceMs;
  while (!check()) {
    if (Date.now() > endMs)
      throw new Error(`waited ${patienceMs} ms without success for: ${check.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
