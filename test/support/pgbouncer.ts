import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { chmodSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { findFreePort } from "../../src/embedded/start-embedded-postgres.ts";
import { serverFolder } from "./server-folder.ts";

export type PoolMode = "session" | "transaction" | "statement";

/** Undefined where PgBouncer is installed; else what to do about it. Throws where it is required. */
export function missingPgBouncer(): string | undefined {
  if (spawnSync(PROGRAM, ["--version"]).error === undefined) return undefined;
  const missing = "install pgbouncer (Debian and Ubuntu: apt-get install pgbouncer)";
  if (process.env["SAGABOX_REQUIRE"] !== "all") return missing;
  throw new Error(`SAGABOX_REQUIRE=all, but there is no PgBouncer here: ${missing}`);
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
