import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import { command, event } from "../message/index.ts";
import type { Bus } from "./bus.ts";

declare const bus: Bus;
const Reserve = command("stock.reserve", {
  schema: z.object({ sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});
const Release = command("stock.release", { schema: z.object({ sku: z.string() }) });
const Placed = event("order.placed", { schema: z.object({ orderId: z.string() }) });

test("B8: the reply has the type its contract says", () => {
  expectTypeOf(bus.request(Reserve, { sku: "s" }, { timeout: "5s" })).resolves.toEqualTypeOf<{
    reservationId: string;
  }>();
  expectTypeOf(bus.request(Release, { sku: "s" }, { timeout: 5 })).resolves.toEqualTypeOf<void>();
});

test("B8: what cannot be asked does not compile", () => {
  // @ts-expect-error an event has no reply
  void bus.request(Placed, { orderId: "o" }, { timeout: "5s" });
  // @ts-expect-error wrong data
  void bus.request(Reserve, { sku: 1 }, { timeout: "5s" });
  // @ts-expect-error a timeout is required
  void bus.request(Reserve, { sku: "s" }, {});
  // @ts-expect-error a scheduled request would only time out
  void bus.request(Reserve, { sku: "s" }, { timeout: "5s", delay: "1s" });
});
