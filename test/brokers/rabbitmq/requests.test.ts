import { command, createBus } from "sagabox";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../support/database.ts";
import { requestSuite } from "../../support/broker-suites.ts";
import { Wire } from "../../support/wire.ts";
import { brokerUrl, closeAll, missing, ownPrefix, transport } from "./broker.ts";

afterEach(closeAll);

const Ping = command("ask.ping", { schema: z.object({}), reply: z.object({ ok: z.boolean() }) });

describe.skipIf(missing !== undefined)("requests over RabbitMQ", () => {
  requestSuite(() => {
    const prefix = ownPrefix();
    return [transport({ prefix }), transport({ prefix })];
  });

  test("B8, G1: with the broker down a process that asks is alive, ready and degraded; a restart would mend nothing", async () => {
    const prefix = ownPrefix();
    const wire = await Wire.to(brokerUrl);
    onTestFinished(() => wire.close());
    const busOn = async (service: string, url: string) => {
      const { pool } = await temporaryDatabase({ max: 30 });
      const bus = createBus({
        service,
        database: pool,
        transport: transport({ prefix, url, unrouted: "drop" }),
        log: false,
      });
      onTestFinished(async () => void (await bus.stop()));
      await bus.migrate();
      return bus;
    };
    const answering = await busOn("stock", brokerUrl);
    answering.on(Ping, { consumer: "stock" }, () => ({ ok: true }));
    await answering.run();
    const asking = await busOn("shop", wire.url);
    const { port } = await asking.run({ port: 0 });
    const probe = async (path: string): Promise<unknown[]> => {
      const response = await fetch(`http://127.0.0.1:${port}/health/${path}`);
      return [response.status, ((await response.json()) as { status: string }).status];
    };
    const states = async (): Promise<unknown[]> => [await probe("live"), await probe("ready")];
    const up = [
      [200, "ok"],
      [200, "ok"],
    ];
    const down = [
      [200, "ok"],
      [200, "degraded"],
    ];
    expect(await asking.request(Ping, {}, { timeout: "20s" })).toEqual({ ok: true });
    await expect.poll(states, { timeout: 20_000 }).toEqual(up);
    wire.sever();
    await expect.poll(states, { timeout: 20_000 }).toEqual(down);
    const { checks } = await asking.health();
    expect(checks).toMatchObject({ database: true, relay: true, "consumer shop.replies": false });
    await expect(asking.request(Ping, {}, { timeout: 300 })).rejects.toMatchObject({
      code: "REQUEST_TIMEOUT",
    });
    wire.heal();
    await expect.poll(states, { timeout: 20_000 }).toEqual(up);
  });
});
