import type { Bus } from "sagabox";
import { expect } from "vitest";

/** Sweeps until nothing is left: transactions of other tests, in other databases of the server, are waited for too. */
export async function sweepAll(bus: Bus): Promise<void> {
  await expect.poll(() => bus.privacy.sweep(), { timeout: 30_000, interval: 200 }).toBe(0);
}
