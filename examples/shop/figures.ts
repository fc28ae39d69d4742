import type { Observer, TelemetryEvents } from "sagabox";
import { ShipOrder, TakePayment } from "./contracts.ts";
import type { Shop } from "./shop.ts";

const none = { orders: 0, billed: 0, shipped: 0, completed: 0, compensated: 0 };

type Counts = Record<keyof typeof none, number>;

/** What the view shows, gathered from the events that sagabox emits. */
export class Figures implements Observer {
  readonly #startedMs = performance.now();
  readonly #window = [{ atMs: performance.now(), counts: none as Counts }];
  readonly total: Counts = { ...none };
  /** Running sagas, and sagas that wait for an operator. */
  open = { running: 0, failed: 0 };
  written = 0;
  sentAtOnce = 0;
  duplicates = 0;
  /** Tells how many messages the load sent again on purpose. Without a fault there are no other duplicates. */
  readSentAgain = (): number => 0;
  pending = 0;
  oldestMs = 0;
  deadLetters = 0;
  /** The latest line a person should see. */
  trouble = "none";

  readonly emit: Observer["emit"] = (name, fields) => {
    const listener = this.#listeners[name];
    if (listener !== undefined) listener(fields as never);
  };

  readonly #listeners: { [Name in keyof TelemetryEvents]?: (fields: TelemetryEvents[Name]) => void } = {
    "outbox.written": ({ count }) => void (this.written += count),
    "optimistic.succeeded": ({ count }) => void (this.sentAtOnce += count),
    "consumer.processed": ({ type }) => {
      if (type === TakePayment.name) this.total.billed += 1;
      if (type === ShipOrder.name) this.total.shipped += 1;
    },
    "saga.changed": ({ to, id }) => {
      if (to === "completed" || to === "compensated") this.total[to] += 1;
      if (to === "failed") this.trouble = `saga ${id} waits for a person`;
    },
    "consumer.duplicate": () => void (this.duplicates += 1),
    "consumer.retried": ({ consumer, error }) => void (this.trouble = `${consumer} tries again: ${error}`),
    "dead_letter.buried": ({ type, error }) => void (this.trouble = `${type} became a dead letter: ${error}`),
    "storage.failed": ({ doing, error }) => void (this.trouble = `database, ${doing}: ${error}`),
    "backlog.measured": ({ pending, oldestAgeMs, deadLetters }) => {
      this.pending = pending;
      this.oldestMs = oldestAgeMs;
      this.deadLetters = deadLetters;
    },
  };

  /** The same shop, its orders counted. */
  countOrders(shop: Shop): Shop {
    const place: Shop["place"] = async (order) => {
      const orderId = await shop.place(order);
      this.total.orders += 1;
      return orderId;
    };
    return { ...shop, place };
  }

  /** Counts the running sagas at intervals. Returns a function that stops it. */
  watchBacklog(shop: Shop): () => void {
    const look = (): void =>
      void shop.open().then(
        (open) => (this.open = open),
        () => undefined, // a database that is away comes back
      );
    const timer = setInterval(look, 1_000);
    return () => clearInterval(timer);
  }

  get uptimeMs(): number {
    return performance.now() - this.#startedMs;
  }

  /** Messages sent by the process that wrote them, right after the commit. */
  get optimisticShare(): number | undefined {
    return this.written === 0 ? undefined : this.sentAtOnce / this.written;
  }

  /** Per second, over the last five seconds or since the call before, whichever is longer. */
  rates(): Counts {
    const atMs = performance.now();
    this.#window.push({ atMs, counts: { ...this.total } });
    while (this.#window.length > 2 && atMs - (this.#window[0]?.atMs ?? atMs) > 5_500) this.#window.shift();
    const first = this.#window[0];
    if (first === undefined || atMs - first.atMs < 500) return { ...none };
    const perSecond = (name: keyof Counts): number =>
      ((this.total[name] - first.counts[name]) / (atMs - first.atMs)) * 1_000;
    return {
      orders: perSecond("orders"),
      billed: perSecond("billed"),
      shipped: perSecond("shipped"),
      completed: perSecond("completed"),
      compensated: perSecond("compensated"),
    };
  }
}
