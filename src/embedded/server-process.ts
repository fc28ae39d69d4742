import { spawn } from "node:child_process";
import { closeSync, existsSync, fstatSync, openSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { sleep, systemClock, withDeadline } from "../runtime/index.ts";
import type { ServerAccount } from "./account.ts";
import type { Binaries } from "./binaries.ts";
import { SUPERUSER } from "./data-folder.ts";
import { embeddedFailure, programEnvironment, systemErrorCode } from "./run-program.ts";

export interface ServerPlan {
  readonly dataDir: string;
  readonly logFile: string;
  readonly port: number;
  readonly settings: Readonly<Record<string, string | number>>;
  readonly readyTimeoutMs: number;
  readonly binaries: Binaries;
  readonly account: ServerAccount | undefined;
}

const POLL_MS = 15;

/** Waits until the server on this data accepts connections; undefined if no server is running on it. */
export async function findRunningServer(
  dataDir: string,
  timeoutMs: number,
): Promise<{ pid: number; port: number } | undefined> {
  const endMs = systemClock.monotonicMs() + timeoutMs;
  for (;;) {
    const found = await readPostmasterFile(dataDir);
    if (found === undefined || !isPostgresProcess(found.pid)) return undefined;
    if (await isAnswering(found.port, SUPERUSER)) return found;
    if (systemClock.monotonicMs() > endMs) {
      throw embeddedFailure(
        `A server (process ${found.pid}) holds ${dataDir} but does not answer on port ${found.port}.`,
      );
    }
    await sleep(POLL_MS);
  }
}

/** Starts a server and waits until it accepts connections. Returns its process id. */
export async function launchServer(plan: ServerPlan): Promise<number> {
  // The server logs to a file instead of a pipe, so that it keeps running if this process is killed.
  const log = openSync(plan.logFile, "a", 0o600);
  const logStart = fstatSync(log).size;
  const child = spawn(join(plan.binaries.binDir, "postgres"), serverArguments(plan), {
    cwd: "/",
    env: programEnvironment(),
    stdio: ["ignore", log, log],
    // Ctrl-C in a terminal signals the whole process group; this process decides when the server stops.
    detached: true,
    ...plan.account,
  });
  closeSync(log);
  let ended: string | undefined;
  child.once("error", (error) => (ended = error.message));
  child.once("exit", (code, signal) => (ended = `ended with ${signal ?? `code ${code}`}`));
  child.unref();
  const ready = await waitUntilReady(plan, () => ended);
  if (ready) return child.pid ?? 0;
  const reason = ended ?? `not ready after ${plan.readyTimeoutMs} ms`;
  if (ended === undefined) {
    const { dataDir } = plan;
    await stopServer({ dataDir, lastKnownPid: child.pid ?? 0, signal: "SIGQUIT", timeoutMs: 10_000 });
  }
  const tail = readFileSync(plan.logFile).subarray(logStart).toString().trim().split("\n").slice(-20);
  throw embeddedFailure(
    `PostgreSQL on ${plan.dataDir} did not start: ${reason}. ` +
      `The end of ${plan.logFile}:\n${tail.join("\n")}`,
  );
}

async function waitUntilReady(plan: ServerPlan, ended: () => string | undefined): Promise<boolean> {
  const endMs = systemClock.monotonicMs() + plan.readyTimeoutMs;
  while (ended() === undefined && systemClock.monotonicMs() < endMs) {
    const file = await readPostmasterFile(plan.dataDir);
    if (file?.status === "ready" && (await isAnswering(plan.port, SUPERUSER))) return ended() === undefined;
    await sleep(POLL_MS);
  }
  return false;
}

export interface ShutdownRequest {
  readonly dataDir: string;
  /** The process to stop if the data folder with its postmaster.pid no longer exists. */
  readonly lastKnownPid: number;
  readonly signal: "SIGINT" | "SIGQUIT";
  readonly timeoutMs: number;
}

/** Sends the signal and waits until the server process has ended. Throws after the timeout. */
export async function stopServer({
  dataDir,
  lastKnownPid,
  signal,
  timeoutMs,
}: ShutdownRequest): Promise<void> {
  const pid = (await readPostmasterFile(dataDir))?.pid ?? lastKnownPid;
  if (!isPostgresProcess(pid)) return;
  process.kill(pid, signal);
  const endMs = systemClock.monotonicMs() + timeoutMs;
  while (isPostgresProcess(pid) && systemClock.monotonicMs() < endMs) await sleep(POLL_MS);
  if (isPostgresProcess(pid)) {
    throw embeddedFailure(`PostgreSQL (process ${pid}) did not stop within ${timeoutMs} ms.`);
  }
}

function serverArguments(plan: ServerPlan): string[] {
  const settings = {
    wal_level: "logical",
    // The superuser has the name of our schema, which PostgreSQL would search before public.
    search_path: "public",
    ...plan.settings,
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
  };
  const pairs = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  return ["-D", plan.dataDir, "-p", String(plan.port), ...pairs];
}

const PROTOCOL_3_0 = 196_608;
const AUTHENTICATION_REQUEST = "R";

/**
 * Returns whether a server on this port accepts connections. It starts a session up to the first response: a request
 * to authenticate means yes, an error ("the database system is starting up") or a timeout means no.
 */
async function isAnswering(port: number, user: string, timeoutMs = 2_000): Promise<boolean> {
  const socket = connect({ host: "127.0.0.1", port });
  const firstByte = new Promise<string>((resolve) => {
    socket.once("connect", () => socket.write(startupMessage(user)));
    socket.once("data", (bytes: Buffer) => resolve(bytes.toString("latin1", 0, 1)));
    socket.on("error", () => resolve(""));
    socket.once("close", () => resolve(""));
  });
  try {
    return (await withDeadline(firstByte, timeoutMs, () => "")) === AUTHENTICATION_REQUEST;
  } finally {
    socket.destroy();
  }
}

function startupMessage(user: string): Buffer {
  const parameters = Buffer.from(`user\0${user}\0database\0postgres\0\0`);
  const head = Buffer.alloc(8);
  head.writeInt32BE(head.length + parameters.length, 0);
  head.writeInt32BE(PROTOCOL_3_0, 4);
  return Buffer.concat([head, parameters]);
}

/** The contents of postmaster.pid, which a running server writes into its data folder. */
interface PostmasterFile {
  readonly pid: number;
  readonly port: number;
  readonly status: string;
}

/** Returns undefined if the file is missing or not completely written. */
export async function readPostmasterFile(dataDir: string): Promise<PostmasterFile | undefined> {
  const content = await readFile(join(dataDir, "postmaster.pid"), "utf8").catch(() => "");
  const lines = content.split("\n");
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  if (!(pid > 0) || !(port > 0)) return undefined;
  return { pid, port, status: lines[7]?.trim() ?? "" };
}

/** Returns whether this process is a running PostgreSQL server. The pid in an old file may have been reused. */
export function isPostgresProcess(pid: number): boolean {
  if (!existsSync("/proc/self/stat")) return isProcessAlive(pid);
  try {
    const [, name, state] = /\((.*)\) (\w)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8")) ?? [];
    // Z: the process has ended, but its parent has not reaped it.
    return name === "postgres" && state !== "Z" && state !== "X";
  } catch {
    return false;
  }
}

function isProcessAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: the process exists but belongs to another user.
    return systemErrorCode(error) === "EPERM";
  }
}
