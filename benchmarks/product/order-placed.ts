import { z } from "zod";
import { event, type InputOf } from "../../src/index.ts";

/** An everyday event: about 500 bytes of JSON, validated at both ends, in order per customer. */
export const OrderPlaced = event("order.placed", {
  schema: z.object({
    orderId: z.string(),
    customerId: z.string(),
    placedAt: z.string(),
    currency: z.string().length(3),
    total: z.number(),
    lines: z.array(z.object({ sku: z.string(), quantity: z.int().positive(), price: z.number() })),
    note: z.string(),
  }),
  key: (order) => order.customerId,
});

const CUSTOMERS = 2_000;
const NOTE =
  "Leave it with the neighbour on the second floor if no one opens; the bell does not work. ".repeat(2);

export function order(n: number): InputOf<typeof OrderPlaced> {
  return {
    orderId: `order-${String(n).padStart(9, "0")}`,
    customerId: `customer-${n % CUSTOMERS}`,
    placedAt: "2026-02-03T04:05:06.789Z",
    currency: "EUR",
    total: 129.9,
    lines: [
      { sku: `SKU-${n % 977}`, quantity: 1 + (n % 3), price: 19.95 },
      { sku: `SKU-${n % 499}`, quantity: 2, price: 45 },
    ],
    note: NOTE,
  };
}
