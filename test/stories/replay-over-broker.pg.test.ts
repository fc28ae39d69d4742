import { createBus, event, permanent } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", { schema: z.object({ n: z.number() }), key: ({ n }) => `k${n % 2}` });
const by = { actor: "ann", reason: "fixed", rate: 1_000 };

async function setup() {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  const transport = new MemoryTransport({ capabilities: { ordersRetries: false } });
  const bus = createBus({
    service: "shop",
    database: pool,
    transport,
    log: false,
    outbox: { optimistic: false },
  });
  onTestFinished(async () => void (await bus.stop()));
  const handled: { id: string; n: number }[] = [];
  const loose: number[] = [];
  const faults = { broken: true };
  for (const [consumer, ordered] of [
    ["billing", true],
    ["loose", false],
  ] as const) {
    bus.on(Placed, { consumer, ordered }, ({ id, data }) => {
      if (faults.broken) throw permanent("no price");
      if (consumer === "billing") handled.push({ id, n: data.n });
      else loose.push(data.n);
    });
  }
  const publish = async (n: number): Promise<string> =>
    (await bus.transaction((tx) => tx.publish(Placed, { n }))).id;
  return { bus, pool, handled, loose, faults, publish };
}

test("E4: letters of a consumer behind a broker are replayed in stages, under their ids, in the order of their keys", async () => {
  const { bus, handled, faults, publish } = await setup();
  await bus.run();
  const ids: string[] = [];
  for (const n of [1, 2, 3, 4, 5, 6, 7, 8]) ids.push(await publish(n));
  await until(async () => (await bus.deadLetters.list({ open: true })).length === 16);
  const stopped = await bus.deadLetters.replayAll({ consumer: "billing" }, by);
  expect(stopped).toMatchObject({ verdict: "stopped", handled: 0, groups: [{ stage: "canary" }] });
  faults.broken = false;
  expect(await bus.deadLetters.replayAll({ consumer: "billing" }, by)).toMatchObject({
    verdict: "done",
    handled: 8,
  });
  expect(handled.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
  const ofKey = (rest: number) => handled.map(({ n }) => n).filter((n) => n % 2 === rest);
  expect([ofKey(1), ofKey(0)]).toEqual([
    [1, 3, 5, 7],
    [2, 4, 6, 8],
  ]);
});

test("E4: letters of a consumer that keeps no order behind a broker are replayed to it, all or one", async () => {
  const { bus, faults, loose, publish } = await setup();
  await bus.run();
  for (const n of [1, 2, 3]) await publish(n);
  const open = () => bus.deadLetters.list({ open: true, consumer: "loose" });
  await until(async () => (await open()).length === 3);
  faults.broken = false;
  const [newest] = await open();
  await bus.deadLetters.replay(newest?.id ?? "", { actor: "ann", reason: "fixed" });
  await until(async () => loose.length === 1);
  expect(await bus.deadLetters.replayAll({ consumer: "loose" }, by)).toMatchObject({
    verdict: "done",
    handled: 2,
  });
  expect(loose.toSorted((a, b) => a - b)).toEqual([1, 2, 3]);
});

test("E4: a dead letter is not replayed to a group that no process has ever joined", async () => {
  const { bus, pool, publish } = await setup();
  await bus.run();
  await publish(1);
  await until(async () => (await bus.deadLetters.list({ open: true, consumer: "loose" })).length === 1);
  await pool.query("update sagabox.dead_letter set consumer = 'elsewhere' where consumer = 'loose'");
  await pool.query("insert into sagabox.consumer_group (name) values ('elsewhere')");
  const [letter] = await bus.deadLetters.list({ open: true, consumer: "elsewhere" });
  await expect(
    bus.deadLetters.replay(letter?.id ?? "", { actor: "ann", reason: "fixed" }),
  ).rejects.toMatchObject({ code: "TRANSPORT_UNROUTABLE" });
  expect(await bus.deadLetters.replayAll({ consumer: "elsewhere" }, by)).toMatchObject({
    verdict: "not running",
    replayed: 0,
    left: 1,
  });
  expect((await pool.query("select 1 from sagabox.queue")).rows).toEqual([]);
});

test("E4: what could not be sent is replayed to the relay, which has to run", async () => {
  const { bus, handled, faults, publish } = await setup();
  faults.broken = false;
  const id = await publish(1);
  await bus.deadLetters.bury(id, { actor: "ann", reason: "too early" });
  expect(await bus.deadLetters.planReplay({ origin: "outbox" })).toMatchObject({
    deadLetters: 1,
    groups: [{ notRunning: "no worker sends from the outbox; start one, then run this again" }],
  });
  await bus.run();
  await until(async () => (await bus.deadLetters.planReplay({})).groups[0]?.notRunning === null);
  expect(await bus.deadLetters.replayAll({ origin: "outbox" }, by)).toMatchObject({
    verdict: "done",
    handled: 1,
  });
  await until(async () => handled.length === 1);
  expect(handled).toEqual([{ id, n: 1 }]);
});
