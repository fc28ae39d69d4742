import { randomBytes } from "node:crypto";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { createBus, event, type Bus } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "../../support/database.ts";
import { Runbook } from "../../support/runbook.ts";
import { serverFolder } from "../../support/server-folder.ts";
import { promote, startStandby } from "../../support/base-backup.ts";
import { Wire } from "../../support/wire.ts";

vi.setConfig({ testTimeout: 300_000 });

const Placed = event("order.placed", { schema: z.object({ id: z.string() }), key: ({ id }) => id });
const later = { timeout: 60_000 };

/** A primary, a standby that follows it, and the address of the current primary. */
async function twoServers() {
  const folder = serverFolder("sagabox-failover-");
  chmodSync(folder, 0o755);
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const dataDir = join(folder, "first");
  const primary = await startEmbeddedPostgres({ dataDir, auth: "trust", settings: { fsync: "off" } });
  onTestFinished(() => primary.stop());
  const [address, replication] = [await Wire.to(primary.url), await Wire.to(primary.url)];
  const standby = await startStandby(primary, join(folder, "second"), replication);
  onTestFinished(() => standby.stop());
  for (const wire of [address, replication]) onTestFinished(() => wire.close());
  return { folder, primary, standby, address, replication };
}

/** A service whose consumer writes down what it handles, in the transaction of its inbox. */
async function openService(service: string, url: string, transport: MemoryTransport): Promise<Bus> {
  const bus = createBus({ service, database: url, log: false, lease: "2s", transport });
  onTestFinished(async () => void (await bus.stop()));
  bus.on(
    Placed,
    { consumer: service, from: "beginning" },
    async ({ data }, { tx }) => void (await tx.query("insert into handled values ($1)", [data.id])),
  );
  await bus.migrate();
  await bus.run();
  return bus;
}

function openClient(url: string) {
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  return async (sql: string): Promise<string[]> =>
    (await pool.query<{ id: string }>(sql)).rows.map(({ id }) => id);
}

const handled = "select id from handled order by id";
const unsent = "select message_id as id from sagabox.outbox";
const placed = "select id from placed order by id";
const duplicates = (bus: Bus): number =>
  Number(/^consumer_inbox_duplicates_total\{consumer_name="mail".* (\d+)$/m.exec(bus.metrics())?.[1] ?? 0);

async function placeOrder(bus: Bus, id: string): Promise<string> {
  const published = await bus.transaction(async (tx) => {
    await tx.query("insert into placed values ($1)", [id]);
    return tx.publish(Placed, { id });
  });
  return published.id;
}

test("G7, G14, database fail-over: a standby without the last transactions takes over, and the runbook shows what is missing", async () => {
  const { folder, primary, standby, address, replication } = await twoServers();
  const [atPrimary, atStandby] = [openClient(primary.url), openClient(standby.url)];
  for (const table of ["placed", "handled"]) await atPrimary(`create table ${table} (id text)`);
  const broker = new MemoryTransport();
  const shop = await openService("shop", address.url, broker);
  const outside = await temporaryDatabase({ migrated: true });
  await outside.pool.query("create table handled (id text)");
  const mail = await openService("mail", outside.url, broker);
  const atMail = openClient(outside.url);

  await placeOrder(shop, "early");
  await expect.poll(() => atStandby(handled), later).toEqual(["early"]);
  await expect.poll(() => atStandby(unsent), later).toEqual([]);
  // Written and replicated, but sent only after the standby has received the last of its primary.
  broker.goDown();
  await placeOrder(shop, "kept");
  await expect.poll(() => atStandby(placed), later).toEqual(["early", "kept"]);
  replication.sever();
  broker.comeUp();
  const lost = await placeOrder(shop, "lost");
  for (const seen of [atPrimary, atMail]) {
    await expect.poll(() => seen(handled), later).toEqual(["early", "kept", "lost"]);
  }
  // A worker that has sent a message but not recorded it yet records it at the new primary, and does not send again.
  await expect.poll(() => atPrimary(unsent), later).toEqual([]);
  await primary.killImmediately();

  const book = new Runbook("database-failover", address.url);
  expect((await book.follow("First look")).map(({ code }) => code)).toEqual([1, 1]);
  address.leadTo(standby.url);
  await promote(standby);
  address.cut();
  expect(await book.done("First look")).toMatch(/applied/);

  // Nothing was restarted. What was sent is sent again; here its effect is gone with its inbox row, outside it is known.
  await expect.poll(() => atStandby(handled), later).toEqual(["early", "kept"]);
  await expect.poll(() => duplicates(mail), later).toBeGreaterThanOrEqual(1);
  const [doctor] = await book.follow("Look at the server");
  expect([0, 3]).toContain(doctor?.code);
  const [missing] = await book.follow("Look for what is missing", { "message-id": lost });
  expect(missing).toMatchObject({ code: 1, stderr: expect.stringContaining(lost) });
  expect(await atStandby(placed)).toEqual(["early", "kept"]);

  // As the page says, and as after a restore: external consumers take all of it for duplicates.
  const restore = new Runbook("restore-from-backup", address.url, {
    SAGABOX_KEY_RING: ["a", "index"].map((key) => `${key} ${randomBytes(32).toString("base64")}`).join("\n"),
  });
  const before = duplicates(mail);
  const erasures = join(folder, "erasures.ndjson");
  writeFileSync(erasures, "");
  await restore.done("After the restore", {
    "erasures-file": erasures,
    from: new Date(Date.now() - 600_000).toISOString(),
    to: new Date(Date.now() + 60_000).toISOString(),
  });
  await expect.poll(() => duplicates(mail), later).toBeGreaterThanOrEqual(before + 2);
  // Written once more by hand it has a new id, and is another message for those who had seen the first.
  await placeOrder(shop, "lost");
  await expect.poll(() => atStandby(handled), later).toEqual(["early", "kept", "lost"]);
  await expect.poll(() => atMail(handled), later).toEqual(["early", "kept", "lost", "lost"]);

  expect(await book.done("Fix")).toContain("No matching messages wait.");
  await expect.poll(() => book.done("Afterwards").catch(String), later).toContain("healthy");
  expect(book.forgotten).toEqual([]);
});
