import { refuse } from "sagabox";

/** Somebody else's service as well: it goes nearly everywhere. */
export const carrier = {
  async send(key: string, customerId: string, paymentId: string): Promise<{ parcelId: string }> {
    if (customerId.startsWith("remote-")) throw refuse("no carrier goes there");
    return { parcelId: `${key}, paid with ${paymentId}` };
  },
};
