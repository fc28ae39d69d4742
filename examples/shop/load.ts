import { setTimeout as sleep } from "node:timers/promises";
import type { Shop } from "./shop.ts";

export interface Load {
  readonly orders: number;
  /** How many messages were sent again on purpose. Each has one consumer in the shop, so it is one duplicate. */
  readonly sentAgain: number;
  stop(): Promise<void>;
}

export interface LoadOptions {
  /** Default 5. */
  readonly ordersPerSecond?: number;
  /** It ends by itself after this many. Default 50,000. */
  readonly maxOrders?: number;
  /** How often everything of the last second is sent again, as a broker would that forgot. Default 20,000. */
  readonly resendEveryMs?: number;
  /** Whether some customers have a card that is declined, or a slow bank. Default true. */
  readonly trouble?: boolean;
}

const skus = ["tea", "coffee", "cocoa", "mate"];

/** One in ten has a card that is declined, one in twenty a slow bank. */
function customer(number: number): string {
  if (number % 10 === 7) return `declined-${number % 50}`;
  return number % 20 === 13 ? `slow-${number % 50}` : `customer-${number % 50}`;
}

/**
 * Customers. One order at a time: when the shop is slow, they order less. Now and then the last second is sent
 * again, so that one can watch duplicates being recognised.
 */
export function startLoad(shop: Shop, options: LoadOptions = {}): Load {
  const { ordersPerSecond = 5, maxOrders = 50_000, resendEveryMs = 20_000, trouble = true } = options;
  const stopped = new AbortController();
  let orders = 0;
  let sentAgain = 0;
  const order = async (): Promise<void> => {
    const number = orders + 1;
    await shop.place({
      sku: skus[number % skus.length] ?? "tea",
      quantity: 1 + (number % 3),
      customerId: trouble ? customer(number) : `customer-${number % 50}`,
    });
    orders = number;
  };
  const resend = async (): Promise<void> => {
    const to = new Date();
    const { count } = await shop.bus.republish({ from: new Date(to.getTime() - 1_000), to });
    sentAgain += count;
  };
  const running = [
    repeat(order, 1_000 / ordersPerSecond, stopped.signal, () => orders < maxOrders),
    repeat(resend, resendEveryMs, stopped.signal, () => true),
  ];
  return {
    get orders() {
      return orders;
    },
    get sentAgain() {
      return sentAgain;
    },
    async stop() {
      stopped.abort();
      await Promise.all(running);
    },
  };
}

async function repeat(
  work: () => Promise<void>,
  everyMs: number,
  signal: AbortSignal,
  more: () => boolean,
): Promise<void> {
  while (more()) {
    await sleep(everyMs, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return;
    // An unreachable database comes back; the view and the log report it.
    await work().catch(() => sleep(1_000, undefined, { signal }).catch(() => undefined));
  }
}
