import { createBus, event, permanent } from "sagabox";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { someDeadLetters } from "../../../test/support/dead-letters.ts";
import { until } from "../../../test/support/relays.ts";
import { pgDatabase } from "../../storage/index.ts";
import { createDeadLetterAdmin } from "./dead-letter-admin.ts";
import { listDeadLetterGroups } from "./list-dead-letters.ts";
import { replayInStages } from "./staged-replay.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", {
  schema: z.object({ id: z.string(), n: z.number() }),
  key: ({ id }) => id,
});
const by = { actor: "ann", reason: "fixed" };

async function setup() {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false, outbox: { optimistic: false } });
  onTestFinished(async () => void (await bus.stop()));
  const rows = async (sql: string) => (await pool.query<Record<string, unknown>>(sql)).rows;
  return { pool, bus, rows, admin: createDeadLetterAdmin(pgDatabase(pool), "sagabox") };
}

test("dead letters of a key are replayed in the order of their messages, not of their dead-lettering", async () => {
  const { bus, rows, admin } = await setup();
  const seen: number[] = [];
  let broken = true;
  bus.on(Placed, { consumer: "billing" }, ({ data }) => {
    seen.push(data.n);
    if (broken) throw permanent("broken");
  });
  await bus.run();
  await bus.transaction((tx) => tx.publish(Placed, { id: "o1", n: 2 }, { delay: "1s" }));
  await bus.transaction((tx) => tx.publish(Placed, { id: "o1", n: 1 }));
  const dead = async () => (await rows("select 1 from sagabox.dead_letter where closed_at is null")).length;
  await until(async () => (await dead()) === 2);
  // As an older version stored them.
  await rows("update sagabox.dead_letter set key_order = -1, fingerprint = null");
  await replayInStages(admin, {}, { ...by, canary: 1 });
  await until(async () => (await dead()) === 2);
  broken = false;
  expect(await replayInStages(admin, {}, by)).toMatchObject({ verdict: "done", handled: 2 });
  expect(seen).toEqual([1, 2, 1, 1, 2]);
});

test("thousands of dead letters of one key are replayed in order, and only the first few one by one", async () => {
  const { pool, bus, admin } = await setup();
  const seen: number[] = [];
  bus.on(Placed, { consumer: "billing" }, ({ data }) => void seen.push(data.n));
  await bus.run();
  const place = { type: "order.placed", topic: "events.order.placed" };
  await someDeadLetters(pool, place, [
    {
      consumer: "billing",
      letters: 2_500,
      error: "'late'",
      key: "'o1'",
      data: `'{"id":"o1","n":' || n || '}'`,
    },
    { consumer: "billing", letters: 2, error: "'other'", data: `'{"id":"x","n":0}'` },
  ]);
  const { groups } = await listDeadLetterGroups(admin);
  const stop = new AbortController();
  const report = await replayInStages(
    admin,
    { fingerprint: groups[0]?.fingerprint ?? "" },
    {
      ...by,
      rate: 40,
      signal: stop.signal,
      onProgress: ({ replayed }) => replayed >= 80 && stop.abort(),
    },
  );
  expect(report.replayed).toBeGreaterThanOrEqual(80);
  await until(async () => seen.length === report.replayed);
  expect(seen).toEqual(seen.map((_, n) => n + 1));
});
