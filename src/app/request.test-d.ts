import type pg from "pg";
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

declare const oldClient: Omit<pg.PoolClient, "getTransactionStatus">;
declare const client: pg.PoolClient;

test("a pg client fits, unless its types are too old to tell its transaction status", () => {
  void bus.publish(client, Placed, { orderId: "o" });
  // @ts-expect-error the message names the version of @types/pg
  void bus.publish(oldClient, Placed, { orderId: "o" });
});

interface Receipt {
  id: string;
  note?: string;
}

test("the result of inbox.process may be an interface, but not hold a Date", () => {
  const message = { id: "m", consumer: "c", topic: "t", type: "x", data: 1 };
  expectTypeOf(bus.inbox.process(message, (): Receipt => ({ id: "r" }))).resolves.toExtend<{
    kind: string;
  }>();
  // @ts-expect-error a Date would become a string
  void bus.inbox.process(message, () => ({ at: new Date() }));
});
