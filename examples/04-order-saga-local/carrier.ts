import { refuse } from "sagabox";

/** Stands for the service of a parcel carrier, which delivers nearly everywhere. */
export const carrier = {
  async send(key: string, customerId: string, paymentId: string): Promise<{ parcelId: string }> {
    if (customerId.startsWith("remote-")) throw refuse("no carrier goes there");
    return { parcelId: `${key}, paid with ${paymentId}` };
  },
};
