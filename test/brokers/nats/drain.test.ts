import { createBus, event } from "sagabox";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../support/database.ts";
import { createTransport, missing, newPrefix, openTransport, sharedUrl, member } from "./harness.ts";

const Placed = event("drained.placed", { schema: z.object({ n: z.number() }), key: () => "k" });

describe.skipIf(missing)("a drain that sends to NATS", () => {
  test("sends what is due, in order, and joins no consumer group", async () => {
    const { pool } = await temporaryDatabase({ max: 20, migrated: true });
    const options = { servers: sharedUrl, prefix: newPrefix() };
    const transport = createTransport(options);
    const bus = createBus({
      service: "shop",
      database: pool,
      transport,
      log: false,
      outbox: { optimistic: false },
    });
    onTestFinished(async () => void (await bus.stop()));
    let handled = 0;
    bus.on(Placed, { consumer: "books" }, () => void (handled += 1));
    const other = await openTransport(options);
    const reader = await member(other, {
      topic: "events.drained.placed",
      receive: (delivery) => delivery.ack(),
    });
    await bus.transaction(async (tx) => {
      for (let n = 0; n < 20; n++) await tx.publish(Placed, { n });
    });
    expect(await bus.drain({ deadline: "60s" })).toMatchObject({ sent: 20, handled: 0, more: false });
    await reader.until(20);
    expect(reader.received.map(({ message }) => (JSON.parse(message.data) as { n: number }).n)).toEqual(
      Array.from({ length: 20 }, (_, n) => n),
    );
    expect(handled).toBe(0);
    expect((await pool.query("select 1 from sagabox.outbox")).rowCount).toBe(0);
    expect((await pool.query("select 1 from sagabox.relay_lane where owner is not null")).rowCount).toBe(0);
  });
});
