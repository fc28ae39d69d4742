import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import pg from "pg";
import postgres from "postgres";
import { type BusOptions, createBus, event, saga } from "sagabox";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { z } from "zod";
import { OrderPlaced } from "../../examples/guides/contracts.ts";
import { createBilling } from "../../examples/guides/pooler.ts";
import { findFreePort } from "../../src/embedded/start-embedded-postgres.ts";
import { temporaryDatabase } from "../support/database.ts";
import { RecordingObserver } from "../support/recording-observer.ts";
import { cliInProcess } from "../support/run-cli.ts";
import { serverFolder } from "../support/server-folder.ts";

export type PoolMode = "session" | "transaction" | "statement";

/** Undefined where PgBouncer is installed; else what to do about it. Throws where it is required. */
export function missingPgBouncer(): string | undefined {
  if (spawnSync(PROGRAM, ["--version"]).error === undefined) return undefined;
  const missing = "install pgbouncer (Debian and Ubuntu: apt-get install pgbouncer)";
  if (process.env["TEST_REQUIRE"] !== "all") return missing;
  throw new Error(`TEST_REQUIRE=all, but there is no PgBouncer here: ${missing}`);
}

// Debian keeps it where only root looks.
const PROGRAM =
  spawnSync("pgbouncer", ["--version"]).error === undefined ? "pgbouncer" : "/usr/sbin/pgbouncer";
const NOBODY = 65_534;
const READY_MS = 20_000;

/** A PgBouncer of our own in front of the database of a URL. */
export async function startPgBouncer(
  url: string,
  mode: PoolMode,
): Promise<{ readonly url: string; stop(): Promise<void> }> {
  const folder = serverFolder("sagabox-pgbouncer-");
  const port = await findFreePort();
  const server = new URL(url);
  const login = [
    `user=${server.username}`,
    ...(server.password === "" ? [] : [`password=${server.password}`]),
  ];
  const config = join(folder, "pgbouncer.ini");
  writeFileSync(
    config,
    `[databases]
* = host=${server.hostname} port=${server.port} ${login.join(" ")}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = ${mode}
max_client_conn = 200
default_pool_size = ${mode === "session" ? 20 : 5}
`,
  );
  chmodSync(folder, 0o755);
  chmodSync(config, 0o644);
  // It refuses to run as root.
  const account = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
  const log: string[] = [];
  const child = spawn(PROGRAM, [config], { stdio: ["ignore", "pipe", "pipe"], ...account });
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => log.push(String(text)));
  const stop = async (): Promise<void> => {
    await end(child);
    rmSync(folder, { recursive: true, force: true });
  };
  const giveUpAt = Date.now() + READY_MS;
  while (!(await answers(port))) {
    if (child.exitCode !== null || Date.now() > giveUpAt) {
      await stop();
      throw new Error(`pgbouncer did not start:\n${log.join("").slice(-2_000)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  server.port = String(port);
  server.hostname = "127.0.0.1";
  return { url: server.href, stop };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGKILL");
  await exited;
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

const missing = missingPgBouncer();
const Paid = event("pooled.paid", { schema: z.object({ n: z.number() }) });
const refused = {
  code: "STORAGE_POOLER_UNSUPPORTED",
  message: expect.stringMatching(/^[^\n]*PgBouncer[^\n]*`directUrl`[^\n]*$/) as string,
};

type Directness = "no setting" | "direct" | "pooled" | "none";

async function openPooled(mode: PoolMode, directness: Directness = "no setting", migrated = true) {
  // PgBouncer keeps its connections to the server until it is stopped.
  const { url: direct, pool: admin } = await temporaryDatabase({ migrated, leakGuard: false, max: 30 });
  const bouncer = await startPgBouncer(direct, mode);
  onTestFinished(() => bouncer.stop());
  const pool = new pg.Pool({ connectionString: bouncer.url, max: 10 });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  const observer = new RecordingObserver();
  const directUrls = { "no setting": undefined, direct, pooled: bouncer.url, none: false } as const;
  const directUrl = directUrls[directness];
  const makeBus = (options: Partial<BusOptions> = {}) => {
    const bus = createBus({
      service: "shop",
      database: pool,
      log: false,
      observers: [observer],
      ...(directUrl === undefined ? {} : { directUrl }),
      ...options,
    });
    onTestFinished(async () => void (await bus.stop()));
    return bus;
  };
  return { bus: makeBus(), makeBus, pool, admin, observer, url: bouncer.url, direct };
}

const bookPayment = saga("book-payment", {
  version: 1,
  input: z.object({ n: z.number() }),
  key: ({ n }) => String(n),
})
  .tx("book", ({ tx, input }) => tx.query("insert into paid values ($1)", [input.n]).then(() => null))
  .noUndo("a booking stays");

async function inTransaction(
  pool: pg.Pool,
  work: (client: pg.PoolClient) => Promise<unknown>,
): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query("begin");
    await work(client);
    await client.query("commit");
  } finally {
    client.release();
  }
}

/** Checks each session that the pooler shares: no prepared statement, and no other settings than in a new session. */
async function expectCleanSessions(pooled: pg.Pool, direct: pg.Pool): Promise<void> {
  const look = (pool: pg.Pool) =>
    pool.query<object>(
      `select (select count(*)::int from pg_prepared_statements) as prepared, pg_sleep(0.05)::text as slept,
              (select json_object_agg(name, setting order by name) from pg_settings
                where name not in ('application_name', 'client_encoding') and name not like 'plpgsql.%') as settings`,
    );
  const { rows: fresh } = await look(direct);
  expect(fresh).toMatchObject([{ prepared: 0 }]);
  for (const { rows } of await Promise.all(Array.from({ length: 10 }, () => look(pooled))))
    expect(rows).toEqual(fresh);
}

/** What the first call that fails throws; each round makes ten at once. */
async function firstFailure(call: (n: number) => Promise<unknown>): Promise<unknown> {
  for (let round = 0; round < 20; round++) {
    const calls = await Promise.allSettled(Array.from({ length: 10 }, (_, n) => call(n)));
    const failed = calls.find((one) => one.status === "rejected");
    if (failed !== undefined) return failed.reason;
  }
  return undefined;
}

describe.skipIf(missing !== undefined)(`PgBouncer${missing === undefined ? "" : `: ${missing}`}`, () => {
  test.each<PoolMode>(["transaction", "statement"])(
    "in %s mode a worker does not start, and says why in one line",
    async (mode) => {
      const { bus } = await openPooled(mode);
      await expect(bus.run({ port: false })).rejects.toMatchObject(refused);
    },
  );

  test("in transaction mode bus.transaction says why it fails", async () => {
    const { bus } = await openPooled("transaction");
    const failure = await firstFailure((n) => bus.transaction((tx) => tx.publish(Paid, { n })));
    expect(failure).toMatchObject(refused);
  });

  test("in transaction mode a publish into the caller's own transaction says why it fails", async () => {
    const { bus, pool } = await openPooled("transaction");
    const failure = await firstFailure(async (n) => {
      const client = await pool.connect();
      try {
        await client.query("begin");
        await bus.publish(client, Paid, { n });
        await client.query("commit");
      } catch (error) {
        await client.query("rollback");
        throw error;
      } finally {
        client.release();
      }
    });
    expect(failure).toMatchObject(refused);
  });

  test("in transaction mode a publish into a transaction of postgres.js says why it fails", async () => {
    const { bus, url } = await openPooled("transaction");
    const sql = postgres(url, { max: 10 });
    onTestFinished(() => sql.end());
    const failure = await firstFailure((n) => sql.begin((tx) => bus.publish(tx, Paid, { n })));
    expect(failure).toMatchObject(refused);
  });

  test("in transaction mode the doctor names the pooler, and exits with 3", async () => {
    const { url } = await openPooled("transaction");
    const { code, stdout } = await cliInProcess(["doctor"], { DATABASE_URL: url });
    expect([code, stdout]).toEqual([3, expect.stringMatching(/sessions: .*pooler[\s\S]*SAGABOX_DIRECT_URL/)]);
  });

  test("a `directUrl` that leads through the pooler, too, is refused", async () => {
    const { bus } = await openPooled("transaction", "pooled");
    await expect(bus.run({ port: false })).rejects.toMatchObject({
      code: "STORAGE_POOLER_UNSUPPORTED",
      message: expect.stringContaining("`directUrl` leads through a pooler") as string,
    });
  });

  test("in transaction mode with `directUrl` a worker handles what every kind of caller publishes, and runs sagas", async () => {
    const { bus, pool, admin, observer, url } = await openPooled("transaction", "direct");
    await admin.query("create table paid (n integer primary key)");
    bus.on(Paid, { consumer: "books", concurrency: 8 }, async ({ data }, { tx }) => {
      await tx.query("insert into paid values ($1)", [data.n]);
    });
    bus.register(bookPayment);
    await bus.run({ port: false });
    const sql = postgres(url, { max: 5, prepare: false });
    onTestFinished(() => sql.end());
    await Promise.all(
      Array.from({ length: 60 }, async (_, n) => {
        if (n % 3 === 0) return bus.transaction((tx) => tx.publish(Paid, { n }));
        if (n % 3 === 1) return sql.begin((tx) => bus.publish(tx, Paid, { n }));
        return inTransaction(pool, (client) => bus.publish(client, Paid, { n }));
      }),
    );
    const { sagaId } = await bus.transaction((tx) => tx.start(bookPayment, { n: 1_000 }));
    await observer.until("consumer.processed", 60);
    await expect
      .poll(async () => (await bus.sagas.show(sagaId)).status, { timeout: 30_000 })
      .toBe("completed");
    const { rows } = await admin.query<{ n: number }>("select n from paid order by n");
    expect(rows.map(({ n }) => n)).toEqual([...Array.from({ length: 60 }, (_, n) => n), 1_000]);
    expect(observer.of("consumer.retried")).toEqual([]);
    // Hints arrive on the direct connections. Nothing of a session was left on the sessions that all clients share.
    await expectCleanSessions(pool, admin);
  });

  test("the bus of the guide works behind PgBouncer", async () => {
    const { pool, admin, direct } = await openPooled("transaction", "direct");
    await admin.query("create table guide_bill (order_id text primary key, cents integer not null)");
    vi.stubEnv("SAGABOX_LOG_LEVEL", "silent");
    const billing = createBilling(pool, direct);
    onTestFinished(async () => void (await billing.stop()));
    await billing.run({ port: false });
    await billing.transaction((tx) => tx.publish(OrderPlaced, { orderId: "o-1", cents: 5 }));
    const bills = async () => (await admin.query("select order_id, cents from guide_bill")).rows;
    await expect.poll(bills, { timeout: 30_000 }).toEqual([{ order_id: "o-1", cents: 5 }]);
  });

  test("in transaction mode without a direct address, publishing, drain, handle and saga steps work, and run says what is missing", async () => {
    const { bus, makeBus, pool, admin } = await openPooled("transaction", "none");
    await admin.query("create table paid (n integer primary key)");
    const drainer = makeBus({ outbox: { optimistic: false } });
    for (const one of [bus, drainer]) {
      one.on(Paid, { consumer: "books" }, async ({ data }, { tx }) => {
        await tx.query("insert into paid values ($1)", [data.n]);
      });
      one.register(bookPayment);
    }
    await expect(bus.run({ port: false })).rejects.toMatchObject({
      ...refused,
      message: expect.stringContaining("bus.drain()") as string,
    });
    await drainer.drain();
    await Promise.all(
      Array.from({ length: 40 }, (_, n) =>
        n % 2 === 0
          ? drainer.transaction((tx) => tx.publish(Paid, { n }))
          : inTransaction(pool, (client) => drainer.publish(client, Paid, { n })),
      ),
    );
    await inTransaction(pool, (client) => drainer.start(client, bookPayment, { n: 1_000 }));
    const drained = await drainer.drain({ deadline: "60s" });
    expect(drained).toMatchObject({ sent: 40, handled: 40, more: false });
    // The optimistic sender of a bus with it on needs no session either.
    await bus.transaction((tx) => tx.publish(Paid, { n: 40 }));
    await expect
      .poll(async () => {
        await bus.drain({ deadline: "30s" });
        return (await admin.query("select 1 from paid where n = 40")).rowCount;
      })
      .toBe(1);
    const cloudEvent = {
      specversion: "1.0",
      id: "r-1",
      source: "/pos",
      type: "pooled.paid",
      data: { n: 41 },
    };
    const headers = { "content-type": "application/cloudevents+json" };
    const record = { topic: "events.pooled.paid", headers, body: JSON.stringify(cloudEvent) };
    expect(await bus.handle(record)).toEqual([{ consumer: "books", outcome: "handled" }]);
    expect(await bus.handle(record)).toEqual([{ consumer: "books", outcome: "duplicate" }]);
    const { rows } = await admin.query<{ n: number }>("select n from paid order by n");
    expect(rows.map(({ n }) => n)).toEqual([...Array.from({ length: 42 }, (_, n) => n), 1_000]);
    await expectCleanSessions(pool, admin);
  });

  test("the command line uses SAGABOX_DIRECT_URL, and the doctor finds nothing wrong there", async () => {
    const { url, direct } = await openPooled("transaction");
    const { stdout } = await cliInProcess(["doctor", "--all"], {
      DATABASE_URL: url,
      SAGABOX_DIRECT_URL: direct,
    });
    expect(stdout).toContain("✓ sessions: each connection has a session of its own");
  });

  test("in session mode everything works: migrations, the doctor, publishing and handling", async () => {
    const { bus, observer, url } = await openPooled("session", "no setting", false);
    await bus.migrate();
    let handled = 0;
    bus.on(Paid, { consumer: "books" }, () => void (handled += 1));
    await bus.run({ port: false });
    for (let n = 0; n < 20; n++) await bus.transaction((tx) => tx.publish(Paid, { n }));
    await observer.until("consumer.processed", 20);
    expect(handled).toBe(20);
    const { stdout } = await cliInProcess(["doctor", "--all"], { DATABASE_URL: url });
    expect(stdout).toContain("✓ sessions: each connection has a session of its own");
  });
});

test("SQL that drops our prepared statements is named as a cause as well", async () => {
  const { pool } = await temporaryDatabase({ migrated: true });
  const bus = createBus({ service: "shop", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  const client = await pool.connect();
  onTestFinished(() => client.release(true));
  const publish = async (): Promise<void> => {
    await client.query("begin");
    await bus.publish(client, Paid, { n: 1 });
    await client.query("commit");
  };
  await publish();
  await client.query("deallocate all");
  await expect(publish()).rejects.toMatchObject({
    code: "STORAGE_POOLER_UNSUPPORTED",
    message: expect.stringContaining("DEALLOCATE") as string,
  });
});
