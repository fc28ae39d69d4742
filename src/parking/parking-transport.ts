import { errorText } from "../errors/index.ts";
import type { Message } from "../message/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type {
  BrokerTopology,
  Capabilities,
  Consumption,
  DeadLetterNote,
  Delivery,
  PlannedGroup,
  PublishOptions,
  PublishOutcome,
  Subscription,
  Transport,
} from "../transport/index.ts";
import type { PostgresTransport } from "../transports/postgres/index.ts";
import { KeyGate } from "./key-gate.ts";
import { ParkedDelivery } from "./parked-delivery.ts";

/** A broker whose keyed retries and replayed letters wait in Postgres. Everything else is the broker's own. */
export class ParkingTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities;
  readonly #broker: Transport;
  readonly #tables: PostgresTransport;
  readonly #observer: Observer;

  constructor(broker: Transport, tables: PostgresTransport, observer: Observer) {
    this.name = broker.name;
    this.capabilities = { ...broker.capabilities, ordersRetries: true };
    this.#broker = broker;
    this.#tables = tables;
    this.#observer = observer;
  }

  async open(): Promise<void> {
    await this.#tables.open();
    await this.#broker.open();
  }

  publish(batch: readonly Message[], options: PublishOptions): Promise<readonly PublishOutcome[]> {
    return this.#broker.publish(batch, options);
  }

  depths(topics: readonly string[]): Promise<ReadonlyMap<string, number>> {
    return this.#broker.depths?.(topics) ?? Promise.resolve(new Map());
  }

  declares(groups: readonly PlannedGroup[]): BrokerTopology {
    return this.#broker.declares?.(groups) ?? { objects: [], permissions: [] };
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    const { group, ordered } = subscription;
    const gate = ordered
      ? new KeyGate({
          lot: await this.#tables.openParkedKeys(group),
          group,
          observer: this.#observer,
          receive,
        })
      : undefined;
    let fresh: Consumption | undefined = undefined;
    const copy = (message: Message, note: DeadLetterNote): Promise<void> => this.#copy(fresh, message, note);
    // Retries of an unordered group wait at the broker, but its replayed letters come from the tables as well.
    const parked = await this.#tables.subscribe({ ...subscription, topics: [] }, (delivery) =>
      receive(new ParkedDelivery(delivery, copy)),
    );
    const consumption = await this.#broker
      .subscribe(subscription, (delivery) => (gate === undefined ? receive(delivery) : gate.admit(delivery)))
      .catch(async (error: unknown) => {
        await parked.close();
        throw error;
      });
    fresh = consumption;
    const closing = (): void => {
      if (gate !== undefined) gate.closing = true;
    };
    return {
      pause: async () => {
        closing();
        await Promise.all([consumption.pause(), parked.pause()]);
      },
      close: async () => {
        closing();
        await gate?.idle();
        await consumption.close();
        await parked.close();
      },
      health: () => (consumption.health().ok ? parked.health() : consumption.health()),
    };
  }

  // The letter is written. A broker that is down must not hold up those who are alive.
  async #copy(fresh: Consumption | undefined, message: Message, note: DeadLetterNote): Promise<void> {
    try {
      await fresh?.deadLetter?.(message, note);
    } catch (error) {
      this.#observer.emit("transport.unreachable", {
        transport: this.name,
        doing: `showing dead letter ${message.id} there`,
        error: errorText(error),
        retryInMs: 0,
      });
    }
  }

  async close(): Promise<void> {
    await this.#broker.close();
    await this.#tables.close();
  }
}
