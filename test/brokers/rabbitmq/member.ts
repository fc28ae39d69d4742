import type { Consumption, Delivery, PublishOutcome, Subscription, Transport } from "sagabox/transport";
import type { Message } from "../../../src/message/index.ts";
import { aMessage } from "../../support/messages.ts";

const PATIENCE_MS = 30_000;

interface MemberOptions extends Partial<Omit<Subscription, "topics">> {
  readonly topics?: Subscription["topics"];
  /** Default: acknowledge everything. */
  readonly receive?: (delivery: Delivery) => unknown;
}

/** A member of a group that remembers what it was given. */
export class Member {
  readonly received: Delivery[] = [];
  consumption: Consumption | undefined;
  #wake: (() => void)[] = [];

  static async of(transport: Transport, wishes: MemberOptions = {}): Promise<Member> {
    const member = new Member();
    const { receive = (delivery: Delivery) => delivery.ack(), ...rest } = wishes;
    member.consumption = await transport.subscribe(
      {
        group: "group",
        service: "reader",
        worker: "worker",
        prefetch: 10,
        ordered: true,
        topics: [topic()],
        ...rest,
      },
      (delivery) => {
        member.received.push(delivery);
        void receive(delivery);
        for (const wake of member.#wake.splice(0)) wake();
      },
    );
    return member;
  }

  get ids(): string[] {
    return this.received.map(({ message }) => message.id);
  }

  async got(count: number): Promise<readonly Delivery[]> {
    await until(
      () => this.received.length >= count,
      `${count} deliveries`,
      () => this.#next(),
    );
    return this.received.slice(0, count);
  }

  async close(): Promise<void> {
    await this.consumption?.close();
  }

  #next(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }
}

export const topic = (
  change: Partial<Subscription["topics"][number]> = {},
): Subscription["topics"][number] => ({
  topic: "events.order.placed",
  kind: "event",
  from: "now",
  ...change,
});

/** Waits for a change made elsewhere; `change` resolves when the condition may be true. */
export async function until(
  isSo: () => boolean | Promise<boolean>,
  what: string,
  change: () => Promise<void> = () => new Promise((resolve) => setTimeout(resolve, 20)),
): Promise<void> {
  let late = false;
  let wake = (): void => undefined;
  const timedOut = new Promise<void>((resolve) => (wake = resolve));
  const timer = setTimeout(() => {
    late = true;
    wake();
  }, PATIENCE_MS);
  try {
    while (!(await isSo())) {
      if (late) throw new Error(`${what} did not come within ${PATIENCE_MS} ms`);
      await Promise.race([change(), timedOut]);
    }
  } finally {
    clearTimeout(timer);
  }
}

export function publish(
  transport: Transport,
  ...messages: readonly Message[]
): Promise<readonly PublishOutcome[]> {
  return transport.publish(messages, { signal: new AbortController().signal });
}

export async function publishIds(
  transport: Transport,
  ids: readonly string[],
  change: Partial<Message> = {},
): Promise<string[]> {
  const outcomes = await publish(transport, ...ids.map((id) => aMessage({ ...change, id })));
  return outcomes.map(({ kind }) => kind);
}
