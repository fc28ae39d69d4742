import { once } from "node:events";
import { refuse } from "sagabox";

/** Until the caller gives up, as `fetch` would. */
async function noAnswer(signal: AbortSignal): Promise<never> {
  await once(signal, "abort");
  throw signal.reason;
}

// #region bank
const accounts = new Map<string, { cents: number; refunded: boolean }>();

/** Stands for an HTTP service of another company. It honours idempotency keys. */
export const bank = {
  async charge(
    key: string,
    customerId: string,
    cents: number,
    signal: AbortSignal,
  ): Promise<{ paymentId: string }> {
    if (customerId.startsWith("declined-")) throw refuse("card declined");
    if (!accounts.has(key)) accounts.set(key, { cents, refunded: false });
    if (customerId.startsWith("slow-")) await noAnswer(signal); // it has taken the money anyway
    return { paymentId: key };
  },

  /** Paying back what was never taken is nothing to do. */
  async refund(key: string): Promise<void> {
    const payment = accounts.get(key);
    if (payment !== undefined) payment.refunded = true;
  },

  /** What it has taken and not paid back. */
  balance(): number {
    return [...accounts.values()].reduce((sum, { cents, refunded }) => sum + (refunded ? 0 : cents), 0);
  },
};
// #endregion bank
