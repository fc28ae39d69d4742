import { setTimeout as sleep } from "node:timers/promises";

const reserved = new Set<string>();

/** A car rental firm on the internet. */
export const rentals = {
  async reserve(key: string, traveller: string): Promise<{ booking: string }> {
    reserved.add(key);
    return { booking: `a car for ${traveller}` };
  },
  async cancel(key: string): Promise<void> {
    reserved.delete(key);
  },
};

const speedMs: Readonly<Record<string, number>> = { "City Cabs": 10, "Airport Shuttle": 5_000 };

/** Two taxi firms are asked at once; the first to accept gets the ride. */
export const taxis = {
  async order(firm: string, key: string, signal: AbortSignal): Promise<{ firm: string }> {
    reserved.add(key);
    await sleep(speedMs[firm], undefined, { signal }).catch(() => signal.throwIfAborted());
    return { firm };
  },
  async cancel(key: string): Promise<void> {
    reserved.delete(key);
  },
};

/** Everything the two still hold. */
export function held(): number {
  return reserved.size;
}
