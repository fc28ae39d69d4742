import { command, createBus, event, type Bus } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";
import { Wire } from "../support/wire.ts";

const Reserve = command("stock.reserve", {
  schema: z.object({ sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});
const Noted = event("noted", { schema: z.object({}) });

test("a worker that lost its database leaves the replies to others", { timeout: 120_000 }, async () => {
  const { pool, url } = await temporaryDatabase({ migrated: true, leakGuard: false, max: 20 });
  const wire = await Wire.to(url);
  onTestFinished(() => wire.close());
  const transport = new MemoryTransport();
  const worker = async (name: string, at: string): Promise<Bus> => {
    const bus = createBus({
      service: "shop",
      worker: name,
      database: at,
      transport,
      log: false,
      lease: "2s",
      shutdownTimeout: "5s",
    });
    bus.on(Noted, { consumer: "notes" }, () => undefined);
    onTestFinished(async () => void (await bus.stop()));
    await bus.run();
    return bus;
  };
  const stock = createBus({ service: "stock", database: pool, transport, log: false });
  onTestFinished(async () => void (await stock.stop()));
  stock.on(Reserve, { consumer: "stock" }, ({ data: { sku } }) => ({ reservationId: sku }));
  await stock.run();
  const [cutOff, healthy] = [await worker("cut-off", wire.url), await worker("healthy", url)];
  const ask = (bus: Bus, sku: string) => bus.request(Reserve, { sku }, { timeout: "20s" });
  await Promise.all([ask(cutOff, "a"), ask(healthy, "b")]); // from now on both receive replies

  wire.swallow();
  const receives = async (): Promise<boolean | undefined> =>
    (await cutOff.health()).checks["consumer shop.replies"];
  await expect.poll(receives, { timeout: 30_000 }).toBe(false);
  const skus = Array.from({ length: 20 }, (_, n) => `s${n}`);
  const replies = await Promise.all(skus.map((sku) => ask(healthy, sku)));
  expect(replies.map(({ reservationId }) => reservationId)).toEqual(skus);

  wire.heal();
  await expect.poll(receives, { timeout: 30_000 }).toBe(true);
  expect(await ask(cutOff, "again")).toEqual({ reservationId: "again" });
});
