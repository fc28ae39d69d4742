import { command, createBus, permanent, type Bus, type Transport } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "./database.ts";

const Reserve = command("ask.reserve", {
  schema: z.object({ sku: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});

async function busOn(service: string, transport: Transport): Promise<Bus> {
  const { pool } = await temporaryDatabase({ max: 30 });
  const bus = createBus({ service, database: pool, transport, log: false });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  return bus;
}

/** Request and reply between two services that share nothing but a broker. */
export function requestSuite(transports: () => readonly [Transport, Transport]): void {
  test("B8: a command is asked, answered and refused over the broker, between databases of their own", async () => {
    const [one, two] = transports();
    const asking = await busOn("shop", one);
    const answering = await busOn("stock", two);
    answering.on(Reserve, { consumer: "stock" }, ({ data: { sku } }) => {
      if (sku === "none") throw permanent("the shelf is empty");
      return { reservationId: `r-${sku}` };
    });
    await answering.run();
    await asking.run();
    const ask = (sku: string) => asking.request(Reserve, { sku }, { timeout: "30s" });
    expect(await ask("first")).toEqual({ reservationId: "r-first" });
    const many = Array.from({ length: 30 }, (_, n) => ask(`${n}`));
    expect((await Promise.all(many)).map(({ reservationId }) => reservationId)).toEqual(
      many.map((_, n) => `r-${n}`),
    );
    await expect(ask("none")).rejects.toMatchObject({
      code: "REQUEST_FAILED",
      reason: "rejected",
      message: expect.stringContaining("the shelf is empty"),
    });
  });
}
