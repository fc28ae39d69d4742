import type { Delivery } from "../transport/index.ts";

/** One key of one topic, as far as this process has to do with it. */
export interface KeyState {
  readonly topic: string;
  readonly key: string;
  /** Handed out and not settled. */
  readonly open: Set<Delivery>;
  /** Arrived behind them and not handed out. */
  readonly waiting: Delivery[];
  /** Something of it failed here, or waits in the lot: what arrives is parked behind it. */
  parking: boolean;
}

export type Route = "hand out" | "wait" | "ask the lot";

/**
 * Where an arriving delivery goes. While a predecessor is in the handler's hands nothing of the key can be in the lot,
 * since only whoever holds the key puts anything there.
 */
export function chooseRoute({ open, waiting, parking }: KeyState): Route {
  if (parking) return "wait";
  return open.size > 0 && waiting.length === 0 ? "hand out" : "ask the lot";
}

/** True when everything before those that wait is settled, so that they may be parked in their order. */
export function canPark({ open, waiting, parking }: KeyState): boolean {
  return parking && open.size === 0 && waiting.length > 0;
}

/** True when the process may forget about the key. */
export function isEmpty({ open, waiting }: KeyState): boolean {
  return open.size === 0 && waiting.length === 0;
}
