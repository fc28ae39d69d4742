import { createBus, event, type Transport } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { toWire } from "../../src/transport/index.ts";
import { temporaryDatabase } from "./database.ts";
import { aMessage } from "./messages.ts";

const Sent = event("story.stranger.sent", { schema: z.object({ n: z.number(), filler: z.string() }) });

/** A message of somebody else that is so large that no copy of it, with our headers, can be put at the broker. */
export function unretryableSuite(
  broker: () => {
    readonly transport: Transport;
    /** Puts it at the broker as large as the broker takes it. */
    readonly putLarge: (bodyOf: (filler: string) => Buffer) => Promise<void>;
  },
): void {
  test("a message of which no copy can be made is a dead letter when it fails, and holds up nobody", async () => {
    const { transport, putLarge } = broker();
    const { pool } = await temporaryDatabase({ max: 30 });
    const bus = createBus({ service: "shop", database: pool, transport, log: false });
    onTestFinished(async () => void (await bus.stop()));
    await bus.migrate();
    const seen: number[] = [];
    const how = { consumer: "books", ordered: false, concurrency: 1, from: "beginning" } as const;
    bus.on(Sent, { ...how, retry: { maxAttempts: 3, firstDelay: 50 } }, ({ data }) => {
      seen.push(data.n);
      if (data.n === 1) throw new Error("the ledger is closed");
    });
    await bus.run();
    await putLarge((filler) => {
      const data = JSON.stringify({ n: 1, filler });
      return toWire(
        aMessage({ type: "story.stranger.sent", topic: "events.story.stranger.sent", key: null, data }),
      ).body;
    });
    await expect.poll(() => seen, { timeout: 20_000 }).toEqual([1]);
    await bus.transaction((tx) => tx.publish(Sent, { n: 2, filler: "" }));
    await expect.poll(() => seen, { timeout: 20_000 }).toEqual([1, 2]);
    const { rows } = await pool.query("select reason, error_message from sagabox.dead_letter");
    expect(rows).toEqual([
      { reason: "rejected", error_message: expect.stringContaining("the ledger is closed") },
    ]);
  });
}
