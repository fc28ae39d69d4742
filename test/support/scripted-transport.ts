import type { Message } from "../../src/message/index.ts";
import type { Capabilities, Consumption, PublishOutcome, Transport } from "../../src/transport/index.ts";

type Answer = PublishOutcome | "published" | "rejected" | "refused" | "unreachable" | "unknown";

/** A broker that answers as the test says, and remembers what it took and how. */
export class ScriptedTransport implements Transport {
  readonly name = "scripted";
  readonly capabilities: Capabilities;
  /** What was accepted, in order. */
  readonly published: Message[] = [];
  readonly calls: (readonly Message[])[] = [];
  /** May wait; called for each message in turn. */
  answer: (message: Message) => Answer | Promise<Answer> = () => "published";
  /** Called before any message of a batch is taken. */
  before: (batch: readonly Message[]) => Promise<void> = () => Promise.resolve();
  /** The number of messages that wait at the broker, for depth watches. */
  depths: (topics: readonly string[]) => Promise<ReadonlyMap<string, number>> = () =>
    Promise.resolve(new Map());
  #changed: (() => void)[] = [];

  constructor(capabilities: Partial<Capabilities> = {}) {
    this.capabilities = {
      ordersByKey: true,
      ordersRetries: true,
      failsLaterOfKey: false,
      delaysRedelivery: false,
      keepsUnrouted: true,
      rejectsUnrouted: false,
      replays: true,
      replaysFromTime: true,
      reportsLag: false,
      maxBytes: 1_048_576,
      ...capabilities,
    };
  }

  get ids(): string[] {
    return this.published.map((message) => message.id);
  }

  async open(): Promise<void> {}

  async close(): Promise<void> {}

  async publish(batch: readonly Message[]): Promise<readonly PublishOutcome[]> {
    this.calls.push(batch);
    await this.before(batch);
    const outcomes: PublishOutcome[] = [];
    for (const message of batch) outcomes.push(await this.#take(message));
    for (const wake of this.#changed.splice(0)) wake();
    return outcomes;
  }

  subscribe(): Promise<Consumption> {
    return Promise.reject(new Error("this transport has no subscriptions"));
  }

  /** Resolves when the predicate holds; asked again after each batch. */
  async until(done: () => boolean): Promise<void> {
    while (!done()) await new Promise<void>((resolve) => this.#changed.push(resolve));
  }

  async #take(message: Message): Promise<PublishOutcome> {
    const answer = await this.answer(message);
    const outcome = typeof answer === "object" ? answer : toOutcome(answer);
    if (outcome.kind === "published") this.published.push(message);
    return outcome;
  }
}

function toOutcome(kind: PublishOutcome["kind"]): PublishOutcome {
  return kind === "published" ? { kind } : { kind, error: new Error(`scripted outcome "${kind}"`) };
}
