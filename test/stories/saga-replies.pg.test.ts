import { command, createBus, refuse } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { aCommand } from "../support/consumers.ts";
import { temporaryDatabase } from "../support/database.ts";

const Charge = command("card.charge", { schema: z.object({ card: z.string() }) });

test("S-23: done or refused, the replies to one saga are written with its id, and in its order", async () => {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const transport = new MemoryTransport();
  const bus = createBus({ service: "bank", database: pool, transport, log: false });
  onTestFinished(async () => void (await bus.stop()));
  bus.on(Charge, { consumer: "cards" }, ({ data }) => {
    if (data.card === "empty") throw refuse("card declined");
  });
  await bus.run();
  const charge = (id: string, card: string, sagaId: string | null) =>
    aCommand(Charge, id, { data: JSON.stringify({ card }), sagaId, key: "customer-1" });
  await transport.publish(
    [charge("c1", "gold", "saga-7"), charge("c2", "empty", "saga-7"), charge("c3", "gold", null)],
    {
      signal: new AbortController().signal,
    },
  );
  const replies = "select causation_id, saga_id, key, data::json from sagabox.message order by seq";
  await expect.poll(async () => (await pool.query(replies)).rowCount, { timeout: 10_000 }).toBe(3);
  expect((await pool.query(replies)).rows).toEqual([
    { causation_id: "c1", saga_id: "saga-7", key: "saga-7", data: { requestId: "c1", outcome: "done" } },
    {
      causation_id: "c2",
      saga_id: "saga-7",
      key: "saga-7",
      data: { requestId: "c2", outcome: "failed", reason: "refused", error: "card declined" },
    },
    { causation_id: "c3", saga_id: null, key: null, data: { requestId: "c3", outcome: "done" } },
  ]);
});

test("a command is published for a saga by naming it, and the saga goes along", async () => {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const bus = createBus({ service: "shop", database: pool, transport: new MemoryTransport(), log: false });
  onTestFinished(async () => void (await bus.stop()));
  const client = await pool.connect();
  await client.query("begin");
  await bus.publish(client, Charge, { card: "gold" }, { id: "c1", sagaId: "saga-7" });
  await client.query("commit");
  client.release();
  expect((await pool.query("select id, saga_id from sagabox.message")).rows).toEqual([
    { id: "c1", saga_id: "saga-7" },
  ]);
});
