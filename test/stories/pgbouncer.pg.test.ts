import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import pg from "pg";
import postgres from "postgres";
import { createBus, event } from "sagabox";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
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
  message: expect.stringMatching(/^[^\n]*PgBouncer[^\n]*pool_mode = session[^\n]*$/) as string,
};

async function openPooled(mode: PoolMode, migrated = true) {
  // PgBouncer keeps its connections to the server until it is stopped.
  const { url: direct } = await temporaryDatabase({ migrated, leakGuard: false });
  const bouncer = await startPgBouncer(direct, mode);
  onTestFinished(() => bouncer.stop());
  const pool = new pg.Pool({ connectionString: bouncer.url, max: 10 });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  const observer = new RecordingObserver();
  const bus = createBus({ service: "shop", database: pool, log: false, observers: [observer] });
  onTestFinished(async () => void (await bus.stop()));
  return { bus, pool, observer, url: bouncer.url };
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
    expect([code, stdout]).toEqual([
      3,
      expect.stringMatching(/sessions: .*pooler[\s\S]*pool_mode = session/),
    ]);
  });

  test("in session mode everything works: migrations, the doctor, publishing and handling", async () => {
    const { bus, observer, url } = await openPooled("session", false);
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
