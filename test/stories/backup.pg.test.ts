import { chmodSync, rmSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { createBus, event, saga, type Bus } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { baseBackup } from "../support/base-backup.ts";
import { cliInProcess } from "../support/run-cli.ts";
import { serverFolder } from "../support/server-folder.ts";

const id = z.object({ id: z.string() });
const Placed = event("order.placed", { schema: id, key: (order) => order.id });
const Paid = event("order.paid", { schema: id, key: (order) => order.id });
const shipping = saga("shipping", { version: 1, input: id, key: (order) => order.id })
  .tx("pack", async ({ input, tx }) => void (await tx.query("insert into parcel values ($1)", [input.id])))
  .noUndo("a parcel can stay")
  .waitFor("payment", Paid, { timeout: "1h" })
  .tx("ship", async ({ input, tx }) => void (await tx.query("insert into shipped values ($1)", [input.id])))
  .noUndo("what is gone is gone");

// Nothing here forbids a second row for an order: only sagabox does.
const tables = `create table placed (id text); create table charge (id text);
  create table parcel (id text); create table shipped (id text)`;

/** The service; orders whose name begins with a letter in `held` wait for their handler. */
async function openService(url: string, held: string): Promise<{ bus: Bus; pool: pg.Pool }> {
  const pool = new pg.Pool({ connectionString: url, max: 20 });
  pool.on("error", () => undefined);
  const bus = createBus({ service: "shop", database: pool, log: false, lease: "1s", shutdownTimeout: "1s" });
  bus.on(
    Placed,
    { consumer: "billing", retry: { maxAttempts: 1_000, firstDelay: 50, maxDelay: 50 } },
    async ({ data }, { tx }) => {
      if (held.includes(data.id.charAt(0))) throw new Error("the bank is closed");
      await tx.query("insert into charge values ($1)", [data.id]);
    },
  );
  bus.register(shipping);
  await bus.migrate();
  await bus.run();
  return { bus, pool };
}

async function placeOrders({ bus }: { bus: Bus }, ids: readonly string[]): Promise<void> {
  for (const order of ids) {
    await bus.transaction(async (tx) => {
      await tx.query("insert into placed values ($1)", [order]);
      await tx.publish(Placed, { id: order });
      await bus.start(tx, shipping, { id: order });
    });
  }
}

const pay = (bus: Bus, ids: readonly string[]): Promise<unknown> =>
  bus.transaction(async (tx) => {
    for (const order of ids) await tx.publish(Paid, { id: order });
  });
const names = (letter: string, count: number): string[] =>
  Array.from({ length: count }, (_, n) => `${letter}${n}`);
const rows = async (pool: pg.Pool, table: string): Promise<string[]> => {
  const found = await pool.query<{ id: string }>(`select id from ${table} order by id`);
  return found.rows.map((row) => row.id);
};

const duplicates = (bus: Bus): number =>
  Number(/^consumer_inbox_duplicates_total\{consumer_name="billing".* (\d+)$/m.exec(bus.metrics())?.[1] ?? 0);

test("G14: a base backup taken mid-flow and restored elsewhere loses nothing it holds, and no effect happens twice", async () => {
  const folder = serverFolder("sagabox-backup-");
  chmodSync(folder, 0o755);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const start = (name: string) =>
    startEmbeddedPostgres({ dataDir: join(folder, name), auth: "trust", settings: { fsync: "off" } });
  const first = await start("first");
  onTestFinished(() => first.stop());

  const setup = new pg.Client({ connectionString: first.url });
  await setup.connect();
  await setup.query(tables);
  await setup.end();

  // a is done, b waits for its handler and its payment, c is written while the backup is being taken.
  const before = await openService(first.url, "bc");
  await placeOrders(before, [...names("a", 5), ...names("b", 5)]);
  await pay(before.bus, names("a", 5));
  await expect.poll(() => rows(before.pool, "shipped"), { timeout: 20_000 }).toEqual(names("a", 5));
  await expect.poll(() => rows(before.pool, "charge"), { timeout: 20_000 }).toEqual(names("a", 5));
  await baseBackup(first.url, first.dataDir, join(folder, "second"), () =>
    placeOrders(before, names("c", 3)),
  );

  // More work is done after the backup, and is lost with the server.
  await placeOrders(before, names("d", 2));
  await pay(before.bus, names("b", 5));
  await expect.poll(() => rows(before.pool, "shipped"), { timeout: 20_000 }).toHaveLength(10);
  await before.bus.stop();
  await before.pool.end();
  await first.killImmediately();

  const second = await start("second");
  onTestFinished(() => second.stop());
  const after = await openService(second.url, "");
  onTestFinished(async () => {
    await after.bus.stop();
    await after.pool.end();
  });
  const kept = [...names("a", 5), ...names("b", 5), ...names("c", 3)];
  expect(await rows(after.pool, "placed")).toEqual(kept);
  // A payment that is reported again; it was lost with the server, so it is no duplicate here.
  await pay(after.bus, [...names("b", 5), ...names("c", 3)]);
  await expect.poll(() => rows(after.pool, "shipped"), { timeout: 20_000 }).toEqual(kept);
  await expect.poll(() => rows(after.pool, "charge"), { timeout: 20_000 }).toEqual(kept);
  expect(await rows(after.pool, "parcel")).toEqual(kept);

  // What the archive holds can be sent again to external consumers; here all of it is known.
  const report = await after.bus.republish({
    from: new Date(Date.now() - 3_600_000),
    to: new Date(Date.now() + 1_000),
  });
  expect(report.count).toBeGreaterThan(kept.length);
  await expect.poll(() => duplicates(after.bus), { timeout: 20_000 }).toBeGreaterThanOrEqual(kept.length);
  expect(await rows(after.pool, "charge")).toEqual(kept);
  const stuck = await cliInProcess(["saga", "stuck", "--json"], { DATABASE_URL: second.url });
  expect(JSON.parse(stuck.stdout)).toMatchObject({ stuck: [] });
}, 120_000);
