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

const LONG = 120_000;

/** A service that answers, and two workers of one that asks: the first reaches the database through a wire. */
async function twoThatAsk({ consumes }: { readonly consumes: boolean }) {
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
    if (consumes) bus.on(Noted, { consumer: "notes" }, () => undefined);
    onTestFinished(async () => void (await bus.stop()));
    await bus.run();
    return bus;
  };
  const stock = createBus({ service: "stock", database: pool, transport, log: false });
  onTestFinished(async () => void (await stock.stop()));
  stock.on(Reserve, { consumer: "stock" }, ({ data: { sku } }) => ({ reservationId: sku }));
  await stock.run();
  const [cutOff, healthy] = [await worker("cut-off", wire.url), await worker("healthy", url)];
  const check = async (name: string): Promise<boolean | undefined> => (await cutOff.health()).checks[name];
  return {
    wire,
    cutOff,
    healthy,
    ask: (bus: Bus, sku: string) => bus.request(Reserve, { sku }, { timeout: "20s" }),
    /** Waits until the check of the worker behind the wire has this result. */
    checked: (name: string, isOk: boolean) => expect.poll(() => check(name), { timeout: 30_000 }).toBe(isOk),
  };
}

test.for([
  ["with consumers", true],
  ["without consumers", false],
] as const)(
  "a worker %s that lost its database leaves the replies to others",
  { timeout: LONG },
  async ([, consumes]) => {
    const { wire, cutOff, healthy, ask, checked } = await twoThatAsk({ consumes });
    await Promise.all([ask(cutOff, "a"), ask(healthy, "b")]); // from now on both receive replies

    wire.swallow();
    await checked("consumer shop.replies", false);
    const skus = Array.from({ length: 20 }, (_, n) => `s${n}`);
    const replies = await Promise.all(skus.map((sku) => ask(healthy, sku)));
    expect(replies.map(({ reservationId }) => reservationId)).toEqual(skus);

    wire.heal();
    await checked("consumer shop.replies", true);
    expect(await ask(cutOff, "again")).toEqual({ reservationId: "again" });
  },
);

test(
  "a worker whose first request comes after it lost its database receives no replies until it is back",
  { timeout: LONG },
  async () => {
    const { wire, cutOff, healthy, ask, checked } = await twoThatAsk({ consumes: true });
    await ask(healthy, "a");
    wire.swallow();
    await checked("consumer notes", false); // the lease has lapsed
    const early = ask(cutOff, "early").catch(() => undefined);
    await checked("consumer shop.replies", false);
    const skus = Array.from({ length: 20 }, (_, n) => `s${n}`);
    await Promise.all(skus.map((sku) => ask(healthy, sku)));

    wire.heal();
    await checked("consumer shop.replies", true);
    await early;
    expect(await ask(cutOff, "again")).toEqual({ reservationId: "again" });
  },
);
