import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createBus, event, permanent } from "sagabox";
import { temporaryDatabase } from "../../support/database.ts";
import { eventually, missing, newPrefix, createTransport } from "./harness.ts";

const Counted = event("test.counted", {
  schema: z.object({ key: z.string(), n: z.number() }),
  key: ({ key }) => key,
});

describe.skipIf(missing)("a bus over Kafka", () => {
  test("B2, D6: two workers share the keys; through failures each effect happens once, in order per key", async () => {
    const prefix = newPrefix();
    const { pool } = await temporaryDatabase({ max: 60 });
    const failed = new Set<string>();
    const makeBus = () => {
      const bus = createBus({
        service: "shop",
        database: pool,
        log: false,
        transport: createTransport({ prefix }),
      });
      onTestFinished(async () => void (await bus.stop()));
      bus.on(
        Counted,
        { consumer: "counter", from: "beginning", retry: { firstDelay: "50ms", maxAttempts: 3 } },
        async ({ data: { key, n } }, { tx }) => {
          if (n === 7) throw permanent("seven is not counted");
          // Each fifth fails at first: what comes behind it on its key must wait for it.
          if (n % 5 === 0 && !failed.has(`${key}${n}`)) {
            failed.add(`${key}${n}`);
            throw new Error("not yet");
          }
          await tx.query("insert into counted (key, n) values ($1::text, $2::int)", [key, n]);
        },
      );
      return bus;
    };
    const [bus, other] = [makeBus(), makeBus()];
    await bus.migrate();
    await pool.query("create table counted (id serial, key text, n int)");
    await bus.run();
    await other.run();
    const keys = ["a", "b", "c", "d", "e", "f"];
    for (let n = 0; n < 20; n++)
      await bus.transaction(async (tx) => {
        for (const key of keys) await tx.publish(Counted, { key, n });
      });
    const count = async (): Promise<number> =>
      Number((await pool.query("select count(*) from counted")).rows[0]?.count);
    let counted = 0;
    const looking = setInterval(() => void count().then((found) => (counted = found)), 100);
    onTestFinished(() => clearInterval(looking));
    await eventually(() => counted >= keys.length * 19, 50_000);
    const { rows } = await pool.query<{ key: string; n: number }>("select key, n from counted order by id");
    const expected = Array.from({ length: 20 }, (_, n) => n).filter((n) => n !== 7);
    for (const key of keys) expect(rows.filter((row) => row.key === key).map(({ n }) => n)).toEqual(expected);
    const letters = await pool.query("select count(*) from sagabox.dead_letter");
    expect(Number(letters.rows[0]?.count)).toBe(keys.length);
  });
});
