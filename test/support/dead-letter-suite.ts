import { createBus, event, type Transport } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "./database.ts";

const Placed = event("story.order.placed", { schema: z.object({ n: z.number() }), key: () => "one key" });

export interface SeenDeadLetter {
  readonly body: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** A keyed message that never works: it leaves the broker, is retried out of Postgres, and dies in both places. */
export function deadLetterSuite(
  broker: () => { readonly transport: Transport; readonly letters: () => Promise<readonly SeenDeadLetter[]> },
): void {
  test("E3, rule 18: a keyed message that used up its attempts is a letter in Postgres and one at the broker", async () => {
    const { transport, letters } = broker();
    const { pool } = await temporaryDatabase({ max: 30 });
    const bus = createBus({ service: "shop", database: pool, transport, log: false });
    onTestFinished(async () => void (await bus.stop()));
    await bus.migrate();
    const seen: string[] = [];
    bus.on(
      Placed,
      { consumer: "books", retry: { maxAttempts: 3, firstDelay: 50 } },
      ({ data }, { attempt }) => {
        seen.push(`${data.n}#${attempt}`);
        if (data.n === 1) throw new Error("the ledger is closed");
      },
    );
    await bus.run();
    await bus.transaction((tx) => tx.publish(Placed, { n: 1 }, { headers: { "x-tenant": "acme" } }));
    await expect.poll(() => seen[0], { timeout: 20_000 }).toBe("1#1");
    await bus.transaction((tx) => tx.publish(Placed, { n: 2 }));
    await expect.poll(() => seen, { timeout: 20_000 }).toEqual(["1#1", "1#2", "1#3", "2#1"]);
    await expect.poll(async () => (await letters()).length, { timeout: 20_000 }).toBe(1);
    const [letter] = await letters();
    expect(JSON.parse(letter?.body ?? "")).toMatchObject({ payload: { data: { n: 1 } } });
    expect(letter?.headers).toMatchObject({
      "x-tenant": "acme",
      error_message: "the ledger is closed",
      retry_count: "2",
      consumer_group: "books",
      source_topic: "events.story.order.placed",
    });
    const kept = await pool.query("select reason, attempts from sagabox.dead_letter");
    expect(kept.rows).toEqual([{ reason: "exhausted", attempts: 3 }]);
  });
}
