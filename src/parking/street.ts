import type { Delivery } from "../transport/index.ts";

/** One key of one topic, as far as this process has to do with it. */
export interface Street {
  readonly topic: string;
  readonly key: string;
  /** Handed out and not settled. */
  readonly open: Set<Delivery>;
  /** Arrived behind them and not handed out. */
  readonly waiting: Delivery[];
  /** Something of it failed here, or waits in the lot: what arrives is parked behind it. */
  parking: boolean;
}

export type Way = "hand out" | "wait" | "ask the lot";

/**
 * Where an arriving delivery goes. While a predecessor is in the handler's hands nothing of the key can be in the lot,
 * since only whoever holds the key puts anything there.
 */
export function wayOf({ open, waiting, parking }: Street): Way {
  if (parking) return "wait";
  return open.size > 0 && waiting.length === 0 ? "hand out" : "ask the lot";
}

/** True when everything before those that wait is settled, so that they may be parked in their order. */
export function mayPark({ open, waiting, parking }: Street): boolean {
  return parking && open.size === 0 && waiting.length > 0;
}

/** True when the process may forget about the key. */
export function isEmpty({ open, waiting }: Street): boolean {
  return open.size === 0 && waiting.length === 0;
}
