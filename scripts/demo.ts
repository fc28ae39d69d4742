// npm start: a PostgreSQL, a small shop on it, customers, and a view of what happens. Ctrl-C ends all of it.
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import pg from "pg";
import { isSagaboxError } from "sagabox";
import { startEmbeddedPostgres, type EmbeddedPostgres } from "sagabox/embedded";
import { Figures } from "../examples/shop/figures.ts";
import { serveShop } from "../examples/shop/http.ts";
import { startLoad } from "../examples/shop/load.ts";
import { openShop } from "../examples/shop/shop.ts";
import { showFigures } from "../examples/shop/view.ts";
import { isPostgresProcess } from "../src/embedded/server-process.ts";
import { readMigrationStatus, pgDatabase, quoteSchema } from "../src/storage/index.ts";
import { demoHelp, demoTransport } from "./demo-transport.ts";
import { StopRequest } from "./stop-request.ts";

const root = join(import.meta.dirname, "..");
const out = process.stdout;

if (process.argv.slice(2).some((word) => word === "--help" || word === "-h")) {
  out.write(`${demoHelp}\n`);
  process.exit(0);
}

/** Undone in reverse, also after a failure: the last thing started is the first to stop. */
const undo: (() => unknown)[] = [];
const stop = new StopRequest(process, out);

try {
  await run(); // an early Ctrl-C waits for the start to end, so that nothing begun is forgotten
  await stop.requested;
} catch (error) {
  process.exitCode = 1;
  process.stderr.write(`${reason(error)}\n`);
}
for (let end = undo.pop(); end !== undefined; end = undo.pop()) {
  try {
    await end();
  } catch (error) {
    process.exitCode = 1;
    process.stderr.write(`${reason(error)}\n`);
  }
}
process.exit();

async function run(): Promise<void> {
  const { PORT = "3000", SAGABOX_PORT = "8000", SAGABOX_SCHEMA = "sagabox", SHOP_LOAD = "1" } = process.env;
  const ports = { shop: parsePort("PORT", PORT), health: parsePort("SAGABOX_PORT", SAGABOX_PORT) };
  const choice = await demoTransport(process.argv.slice(2), process.env["SHOP_BROKER_URL"], (line) =>
    out.write(`${line}\n`),
  );
  undo.push(() => choice.stop());
  const { url, place, embedded } = await database();
  const pool = new pg.Pool({ connectionString: url, max: 40 });
  undo.push(() => pool.end());
  pool.on("error", () => undefined); // the pool replaces a connection that broke while idle

  if (embedded !== undefined) await dropOutdatedData(embedded, pool, SAGABOX_SCHEMA);
  const figures = new Figures();
  const opened = await openShop(pool, {
    schema: SAGABOX_SCHEMA,
    log: out.isTTY ? false : "warn", // on a terminal the view shows the last trouble itself
    observers: [figures],
    ...(choice.transport !== undefined && { transport: choice.transport }),
  });
  undo.push(() => opened.bus.stop());
  const shop = figures.countOrders(opened);
  undo.push(figures.watchBacklog(shop));
  const { port: healthPort = ports.health } = await shop.bus.run({ port: ports.health });
  const found = await ordersFound(pool);
  const server = await serveShop(shop, ports.shop);
  undo.push(() => server.close());
  if (SHOP_LOAD !== "0") {
    const load = startLoad(shop);
    figures.readSentAgain = () => load.sentAgain;
    undo.push(() => load.stop());
  }
  undo.push(
    showFigures({
      figures,
      about: about(server.port, healthPort, `${place}${found}`, choice.description),
      out,
    }),
  );
}

async function database(): Promise<{ url: string; place: string; embedded?: EmbeddedPostgres }> {
  const given = process.env["SAGABOX_DATABASE_URL"] ?? process.env["DATABASE_URL"];
  if (given !== undefined && given !== "") return { url: given, place: "the database of DATABASE_URL" };
  out.write("Starting PostgreSQL …\n");
  const folder = resolve(root, process.env["SHOP_FOLDER"] ?? ".sagabox");
  mkdirSync(folder, { recursive: true });
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "shop"), onNotice: () => undefined });
  const note = join(folder, "shop.url"); // for `npm run sagabox`, as long as the server runs
  // Also when a second Ctrl-C ends us at once, before it was its turn.
  const onDisconnect = (): void => {
    if (!isPostgresProcess(server.pid)) return;
    process.kill(server.pid, "SIGINT");
    rmSync(note, { force: true });
  };
  if (!server.reused) process.once("exit", onDisconnect);
  undo.push(async () => (await leave(server)) && rmSync(note, { force: true }));
  writeFileSync(note, server.url, { mode: 0o600 });
  const place = relative(root, server.dataDir);
  return { url: server.url, place: place.startsWith("..") ? server.dataDir : place, embedded: server };
}

// Only the demo's own server is emptied. While another demo runs on it, the start fails with the error that says why.
async function dropOutdatedData(server: EmbeddedPostgres, pool: pg.Pool, schema: string): Promise<void> {
  try {
    await readMigrationStatus(pgDatabase(pool), schema);
  } catch (error) {
    if (!isSagaboxError(error) || error.code !== "STORAGE_SCHEMA_MISMATCH") throw error;
    if (server.reused) throw error;
    out.write("The demo data was made by another version of sagabox. It is dropped and created again.\n");
    await pool.query(
      `drop schema ${quoteSchema(schema)} cascade; drop schema public cascade; create schema public`,
    );
  }
}

// A server that was running already may serve another demo; the last demo stops it.
async function leave(server: EmbeddedPostgres): Promise<boolean> {
  if (server.reused && (await inUse(server.url))) {
    out.write("PostgreSQL stays, since others are connected to it.\n");
    return false;
  }
  await server.stop();
  out.write("PostgreSQL stopped; its data stays.\n");
  return true;
}

async function inUse(url: string): Promise<boolean> {
  const client = new pg.Client({ connectionString: url });
  try {
    await client.connect();
    const { rowCount } = await client.query(
      "select 1 from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()",
    );
    return (rowCount ?? 0) > 0;
  } catch {
    return false;
  } finally {
    await client.end().catch(() => undefined);
  }
}

async function ordersFound(pool: pg.Pool): Promise<string> {
  const { rows } = await pool.query<{ orders: number }>("select count(*)::integer as orders from shop_order");
  const orders = rows[0]?.orders ?? 0;
  return orders === 0 ? "" : `, with ${orders} orders from before`;
}

function about(port: number, healthPort: number, place: string, transport: string): string[] {
  const order = `'{"sku":"tea","quantity":2,"customerId":"you"}'`;
  return [
    `  place an order    curl -s http://127.0.0.1:${port}/orders -H 'content-type: application/json' -d ${order}`,
    "  customers         declined-… has a card that is declined, slow-… a bank that answers too late",
    `  look at it        curl -s http://127.0.0.1:${port}/orders/<orderId>`,
    `  health, metrics   http://127.0.0.1:${healthPort}/health/ready  http://127.0.0.1:${healthPort}/metrics`,
    "  command line      npm run sagabox -- saga list     (or explain <message-id>, dlq, status, doctor, help)",
    `  transport         ${transport}`,
    `  data              ${place}`,
    "  Ctrl-C stops everything; the next start finds the data again.",
  ];
}

function parsePort(name: string, value: string): number {
  const port = Number(value);
  if (/^\d{1,5}$/.test(value) && port <= 65_535) return port;
  throw new Error(`${name} must be a port between 0 and 65535, but it is "${value}".`);
}

function reason(error: unknown): string {
  if (isSagaboxError(error)) return `${error.message} [${error.code}]`;
  return error instanceof Error ? error.message : String(error);
}
