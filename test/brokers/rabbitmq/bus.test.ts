import { createBus, event, permanent } from "sagabox";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { maxMessageBytes } from "../../support/brokers/rabbitmq-server.ts";
import { temporaryDatabase } from "../../support/database.ts";
import { closeAll, missing, ownPrefix, transport } from "./broker.ts";
import { until } from "./member.ts";

afterEach(closeAll);

const Counted = event("test.counted", {
  schema: z.object({ key: z.string(), n: z.number() }),
  key: ({ key }) => key,
});

const Drawn = event("test.drawn", {
  schema: z.object({ key: z.string(), picture: z.string() }),
  topic: "events.test.counted",
});

describe.skipIf(missing !== undefined)("a bus over RabbitMQ", () => {
  test.each([true, false])(
    "D6: two workers share the messages; through failures each effect happens once (in order per key: %s)",
    async (ordered) => {
      const prefix = ownPrefix();
      const { pool } = await temporaryDatabase({ max: 60 });
      const failed = new Set<string>();
      const makeBus = () => {
        const bus = createBus({
          service: "shop",
          database: pool,
          log: false,
          transport: transport({ prefix }),
        });
        onTestFinished(async () => void (await bus.stop()));
        const retry = { firstDelay: "100ms", maxAttempts: 3 } as const;
        bus.on(Counted, { consumer: "counter", ordered, retry }, async ({ data: { key, n } }, { tx }) => {
          if (n === 7) throw permanent("seven is not counted");
          // Each fifth fails at first: where order is kept, what comes behind it on its key must wait for it.
          if (n % 5 === 0 && !failed.has(`${key}${n}`)) {
            failed.add(`${key}${n}`);
            throw new Error("not yet");
          }
          await tx.query("insert into counted (key, n) values ($1::text, $2::int)", [key, n]);
        });
        return bus;
      };
      const [bus, other] = [makeBus(), makeBus()];
      await bus.migrate();
      await pool.query("create table counted (id serial, key text, n int)");
      await bus.run();
      await other.run();
      const keys = ["a", "b", "c", "d", "e", "f"];
      for (let n = 0; n < 20; n++) {
        await bus.transaction(async (tx) => {
          for (const key of keys) await tx.publish(Counted, { key, n });
        });
      }
      const countByKey = async (): Promise<{ key: string; n: number }[]> =>
        (await pool.query<{ key: string; n: number }>("select key, n from counted order by id")).rows;
      await until(async () => (await countByKey()).length >= keys.length * 19, "all effects");
      const rows = await countByKey();
      const expected = Array.from({ length: 20 }, (_, n) => n).filter((n) => n !== 7);
      for (const key of keys) {
        const seen = rows.filter((row) => row.key === key).map(({ n }) => n);
        expect(ordered ? seen : seen.toSorted((a, b) => a - b)).toEqual(expected);
      }
      const dead = async (): Promise<number> =>
        Number((await pool.query("select count(*) from sagabox.dead_letter")).rows[0]?.count);
      await until(async () => (await dead()) === keys.length, "the dead letters");
    },
  );

  test("A17, E6: a message for which the broker closes the channel dies alone; its destination flows on", async () => {
    const { pool } = await temporaryDatabase({ max: 30 });
    const bus = createBus({
      service: "shop",
      database: pool,
      log: false,
      maxPayloadBytes: 2 * maxMessageBytes,
      transport: transport({ partitions: 2 }),
      outbox: {
        pollInterval: "50ms",
        breaker: { failures: 2, cooldown: "100ms", maxCooldown: "500ms" },
        retry: { maxAttempts: 2, firstDelay: "20ms", maxDelay: "50ms" },
      },
    });
    onTestFinished(async () => void (await bus.stop()));
    const seen = new Set<number>();
    bus.on(Counted, { consumer: "counter" }, ({ data: { n } }) => void seen.add(n));
    await bus.migrate();
    await bus.run();
    await bus.transaction(async (tx) => {
      await tx.publish(Drawn, { key: "large", picture: "x".repeat(maxMessageBytes) });
    });
    const dead = async (): Promise<unknown[]> =>
      (await pool.query("select reason, attempts from sagabox.dead_letter")).rows;
    let n = 0;
    await until(async () => {
      await bus.transaction(async (tx) => void (await tx.publish(Counted, { key: `k${n++}`, n })));
      return (await dead()).length > 0;
    }, "the death of the large message");
    await until(() => seen.size >= n, "all the others");
    expect(await dead()).toEqual([{ reason: "exhausted", attempts: 2 }]);
    expect((await bus.health()).destinations).toEqual({});
  });

  test("the code of the guide runs, and its grant names nothing but what billing needs", async () => {
    const { url } = await temporaryDatabase({ max: 2 });
    vi.stubEnv("DATABASE_URL", url);
    onTestFinished(() => void vi.unstubAllEnvs());
    const { bus, grantBilling, inProduction } = await import("../../../examples/guides/rabbitmq.ts");
    onTestFinished(async () => void (await bus.stop()));
    expect(inProduction.name).toBe("rabbitmq");
    expect(grantBilling()).toContain(String.raw`dp\.event\.invoice`);
    expect(grantBilling()).not.toContain(".*");
  });
});
