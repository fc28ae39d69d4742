import { createBus, event, type BusOptions } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { cutConnections, temporaryDatabase } from "../../support/database.ts";
import { Runbook } from "../../support/runbook.ts";

vi.setConfig({ testTimeout: 60_000 });

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });

async function openService() {
  const database = await temporaryDatabase({ migrated: true });
  const open = (more: Partial<BusOptions> = {}) => {
    const bus = createBus({ service: "shop", database: database.url, log: false, lease: "2s", ...more });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  const rows = async (statements: readonly string[]): Promise<unknown[]> =>
    (await Promise.all(statements.map((sql) => database.pool.query(sql)))).flatMap(
      ({ rows: found }) => found as unknown[],
    );
  return { ...database, open, rows };
}

// What is found depends on the server the tests run on: most are not safe from a crash, on purpose.
async function examineOutbox(book: Runbook): Promise<void> {
  const [doctor] = await book.follow("Look at the server");
  expect([0, 3]).toContain(doctor?.code);
  expect(doctor?.stdout).not.toBe("");
}

test("G7, stuck messages: no worker runs, the runbook says so, and after its fix all is well", async () => {
  const { url, open, rows } = await openService();
  const bus = open({ outbox: { optimistic: false } });
  await bus.migrate();
  const { id } = await bus.transaction((tx) => tx.publish(Placed, { id: "o-1" }));
  const one = { "message-id": id };
  const book = new Runbook("stuck-messages", url);

  const look = await book.done("First look");
  expect(look).toContain("no lane is owned by a running worker");
  expect(look).toContain(id);
  expect(await rows(book.sql("First look"))).toMatchObject([{ status: "pending", count: "1" }]);
  expect(await rows(book.sql("Look at one message", one))).toMatchObject([
    { event_id: id, status: "pending" },
  ]);
  expect(await book.done("Look at one message", one)).toMatch(/no running worker owns lane/);
  expect((await book.follow("Afterwards"))[0]).toMatchObject({ code: 3 });

  await bus.run();
  await expect.poll(() => rows(book.sql("First look")), { timeout: 20_000 }).toEqual([]);
  expect(await book.done("Afterwards")).toContain("healthy");
  expect(book.forgotten).toEqual([]);
});

test("G7, broker down: messages wait and drain by themselves; what the broker lost is sent again once", async () => {
  const { url, open } = await openService();
  const transport = new MemoryTransport();
  const bus = open({ transport, outbox: { breaker: { cooldown: 50, maxCooldown: 50 } } });
  const seen: string[] = [];
  bus.on(Placed, { consumer: "books", from: "beginning" }, ({ data }) => void seen.push(data.id));
  await bus.migrate();
  await bus.run();
  const book = new Runbook("broker-down", url);
  const from = new Date(Date.now() - 60_000).toISOString();

  transport.goDown();
  const { id } = await bus.transaction((tx) => tx.publish(Placed, { id: "o-1" }));
  await expect.poll(async () => await book.done("First look"), { timeout: 20_000 }).toContain(id);
  transport.comeUp();
  await expect.poll(() => seen, { timeout: 20_000 }).toEqual(["o-1"]);
  await expect.poll(() => book.done("Fix"), { timeout: 20_000 }).toContain("Nothing waits");

  const window = { from, to: new Date(Date.now() + 60_000).toISOString() };
  const again = await book.done("If the broker lost messages", window);
  expect(again).toMatch(/\b1\b/);
  await expect
    .poll(() => /inbox_duplicates_total\{.*\} 1$/m.test(bus.metrics()), { timeout: 20_000 })
    .toBe(true);
  expect(seen).toEqual(["o-1"]);
  expect(await book.done("Afterwards")).toContain("healthy");
  expect(book.forgotten).toEqual([]);
});

test("G7, database fail-over: every connection is cut, work continues, and the runbook finds nothing to repair", async () => {
  const { url, open, name } = await openService();
  const bus = open();
  const seen: string[] = [];
  bus.on(Placed, { consumer: "books" }, ({ data }) => void seen.push(data.id));
  await bus.migrate();
  await bus.run();
  await cutConnections({ name });
  const book = new Runbook("database-failover", url);
  expect(await book.done("First look")).toMatch(/applied/);
  const publish = () =>
    bus
      .transaction((tx) => tx.publish(Placed, { id: "after" }))
      .then(
        () => true,
        () => false,
      );
  await expect.poll(publish, { timeout: 20_000 }).toBe(true);
  await expect.poll(() => seen, { timeout: 20_000 }).toContain("after");
  expect(await book.done("Fix")).toContain("No matching messages wait.");
  await examineOutbox(book);
  await expect.poll(() => book.done("Afterwards").catch(String), { timeout: 20_000 }).toContain("healthy");
  // A server that lacks something is rehearsed with a standby of its own.
  expect(book.forgotten).toEqual([expect.stringMatching(/^Look for what is missing: /)]);
});

test("G7, scale: a second worker takes its share of the lanes, and the runbook shows it", async () => {
  const { url, open, rows } = await openService();
  const [one, two] = [open({ worker: "pod-1" }), open({ worker: "pod-2" })];
  await one.migrate();
  await one.run();
  await one.transaction((tx) => tx.publish(Placed, { id: "o-1" }));
  const book = new Runbook("scale", url);
  await expect.poll(() => book.done("First look"), { timeout: 20_000 }).toMatch(/^\S*pod-1.*\b256\b/m);
  await expect.poll(() => rows(book.sql("First look")), { timeout: 20_000 }).toMatchObject([{ sent: "1" }]);
  await examineOutbox(book);
  await two.run();
  await expect.poll(() => book.done("Fix"), { timeout: 20_000 }).toMatch(/^\S*pod-2.*\b128\b/m);
  expect(await book.done("Afterwards")).toContain("healthy");
  expect(book.forgotten).toEqual([]);
});
