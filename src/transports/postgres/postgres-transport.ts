import { SagaboxError } from "../../errors/index.ts";
import { laneSettings, WakeUp } from "../../lanes/index.ts";
import type { Message } from "../../message/index.ts";
import { assertMigrated, quoteSchema } from "../../storage/index.ts";
import type {
  Capabilities,
  Consumption,
  Delivery,
  HomeDatabase,
  LocalHop,
  LocalTransport,
  PublishOptions,
  PublishOutcome,
  Subscription,
} from "../../transport/index.ts";
import {
  postgresSettings,
  type PostgresTransportOptions,
  type PostgresTransportSettings,
} from "./options.ts";
import { ParkedKeys } from "./parked-keys.ts";
import { publishToQueue } from "./publisher.ts";
import { hopStatements } from "./statements.ts";
import { Subscriber } from "./subscriber.ts";
import { subscribeGroup } from "./subscriptions.ts";

const CAPABILITIES: Capabilities = Object.freeze({
  ordersByKey: true,
  ordersRetries: true,
  failsLaterOfKey: true,
  delaysRedelivery: true,
  keepsUnrouted: true,
  rejectsUnrouted: false,
  replays: true,
  replaysFromTime: true,
  maxBytes: 256 * 1_048_576,
});

/** Messages carried by tables. It lives in the bus's own database, which `settleIn` lends to it. */
export class PostgresTransport implements LocalTransport {
  readonly name = "postgres";
  readonly capabilities = CAPABILITIES;
  readonly #settings: PostgresTransportSettings;
  readonly #subscribers = new Set<Subscriber>();
  readonly #writing = new Set<Promise<unknown>>();
  #home: HomeDatabase | undefined;
  #wakeUp: WakeUp | undefined;
  #closed = false;

  constructor(settings: PostgresTransportSettings) {
    this.#settings = settings;
  }

  attach(home: HomeDatabase): LocalHop {
    this.#home = home;
    const { database, channel, schema } = home;
    const wakeUp = new WakeUp({ database, channel, local: (lanes) => this.#hintSubscribers(lanes) });
    this.#wakeUp = wakeUp;
    return { ...hopStatements(quoteSchema(schema)), wake: (lanes) => wakeUp.notifyNow(lanes) };
  }

  async open(): Promise<void> {
    const { database, schema } = this.#requireHome();
    await assertMigrated(database, schema);
    this.#closed = false;
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<readonly PublishOutcome[]> {
    if (this.#closed) return batch.map(() => ({ kind: "unreachable", error: closedError() }));
    const writing = publishToQueue(this.#requireHome(), batch).then(({ outcomes, woken }) => {
      this.#writing.delete(writing);
      if (woken.length > 0) this.#wakeUp?.notifyNow(woken);
      return outcomes;
    });
    this.#writing.add(writing);
    return unknownOnAbort(writing, batch.length, signal);
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    const { database, schema, leaseMs, observer } = this.#requireHome();
    const { id, begun } = await subscribeGroup(database, schema, subscription.group, subscription.topics);
    const subscriber = new Subscriber({
      database,
      schema,
      group: id,
      subscription,
      lanes: laneSettings({ lease: leaseMs }),
      pollMs: this.#settings.pollMs,
      observer,
      receive,
    });
    await subscriber.start();
    this.#subscribers.add(subscriber);
    return {
      begun,
      pause: () => subscriber.pause(),
      health: () => subscriber.health(),
      close: async () => {
        this.#subscribers.delete(subscriber);
        await subscriber.close();
      },
    };
  }

  /** Where the group keeps what a broker must not hold up. The group is made if it is new. */
  async openParkedKeys(group: string): Promise<ParkedKeys> {
    const home = this.#requireHome();
    const { id } = await subscribeGroup(home.database, home.schema, group, []);
    return new ParkedKeys(home, id, (lanes) => this.#wakeUp?.notifyNow(lanes));
  }

  hint(lanes: readonly number[] | undefined, changed = false): void {
    for (const subscriber of this.#subscribers) {
      if (changed && lanes !== undefined) subscriber.recheck(lanes);
      else subscriber.hint(lanes);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#writing);
    await this.#wakeUp?.close();
    await Promise.all([...this.#subscribers].map((subscriber) => subscriber.close()));
    this.#subscribers.clear();
  }

  #hintSubscribers(lanes: readonly number[]): boolean {
    const left = new Set(lanes);
    for (const subscriber of this.#subscribers) for (const lane of subscriber.hint(lanes)) left.delete(lane);
    return left.size === 0;
  }

  #requireHome(): HomeDatabase {
    if (this.#home !== undefined) return this.#home;
    throw new SagaboxError(
      "TRANSPORT_UNREACHABLE",
      "The Postgres transport works inside a bus: pass it to createBus().",
    );
  }
}

// When the sender gives up, nobody knows what the server makes of the statement.
function unknownOnAbort(
  writing: Promise<readonly PublishOutcome[]>,
  count: number,
  signal: AbortSignal,
): Promise<readonly PublishOutcome[]> {
  const error = new SagaboxError("TRANSPORT_TIMEOUT", "PostgreSQL did not confirm the messages in time.");
  return new Promise((resolve, reject) => {
    const giveUp = (): void => resolve(Array.from({ length: count }, () => ({ kind: "unknown", error })));
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    writing.then(resolve, reject).finally(() => signal.removeEventListener("abort", giveUp));
  });
}

function closedError(): SagaboxError {
  return new SagaboxError("TRANSPORT_UNREACHABLE", "The Postgres transport is closed.");
}

/** `createBus({ transport: postgres() })`; it is the default, so naming it is needed only to set its options. */
export function postgres(options: PostgresTransportOptions = {}): PostgresTransport {
  return new PostgresTransport(postgresSettings(options));
}
