import type { Observer, TelemetryEvents } from "sagabox";
import type { Shop } from "./shop.ts";

interface Counts {
  orders: number;
  billed: number;
  shipped: number;
}

/** What the view shows, gathered from what sagabox tells about itself. */
export class Figures implements Observer {
  readonly #startedMs = performance.now();
  readonly #window = [{ atMs: performance.now(), counts: { orders: 0, billed: 0, shipped: 0 } }];
  readonly total: Counts = { orders: 0, billed: 0, shipped: 0 };
  written = 0;
  sentAtOnce = 0;
  duplicates = 0;
  pending = 0;
  oldestMs = 0;
  deadLetters = 0;
  /** The latest line a person should see. */
  trouble = "none";

  readonly tell: Observer["tell"] = (name, fields) => {
    const hear = this.#hearing[name];
    if (hear !== undefined) hear(fields as never);
  };

  readonly #hearing: { [Name in keyof TelemetryEvents]?: (fields: TelemetryEvents[Name]) => void } = {
    "outbox.written": ({ count }) => void (this.written += count),
    "optimistic.succeeded": ({ count }) => void (this.sentAtOnce += count),
    "consumer.processed": ({ consumer }) => {
      if (consumer === "billing") this.total.billed += 1;
      if (consumer === "shipping") this.total.shipped += 1;
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
  counting(shop: Shop): Shop {
    const place: Shop["place"] = async (order) => {
      const orderId = await shop.place(order);
      this.total.orders += 1;
      return orderId;
    };
    return { ...shop, place };
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
    if (first === undefined || atMs - first.atMs < 500) return { orders: 0, billed: 0, shipped: 0 };
    const perSecond = (now: number, then: number): number => ((now - then) / (atMs - first.atMs)) * 1_000;
    return {
      orders: perSecond(this.total.orders, first.counts.orders),
      billed: perSecond(this.total.billed, first.counts.billed),
      shipped: perSecond(this.total.shipped, first.counts.shipped),
    };
  }
}
