import { spawn } from "node:child_process";
import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { sleep, systemClock } from "../runtime/index.ts";
import type { ServerAccount } from "./account.ts";
import type { Binaries } from "./binaries.ts";
import { SUPERUSER } from "./data-folder.ts";
import { embeddedFailure } from "./failure.ts";
import { isServer, readPostmasterFile } from "./postmaster-file.ts";
import { answers } from "./probe-server.ts";
import { programEnvironment } from "./run-program.ts";

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

/** Where a server runs on this data and answers, or undefined. */
export async function runningServer(dataDir: string): Promise<{ pid: number; port: number } | undefined> {
  const found = await readPostmasterFile(dataDir);
  if (found === undefined || !isServer(found.pid)) return undefined;
  return (await answers(found.port, SUPERUSER)) ? found : undefined;
}

/** Starts a server and waits until it takes connections. Returns its process id. */
export async function launch(plan: ServerPlan): Promise<number> {
  // The server writes to a file, not to us, so that it can go on when we are killed.
  const log = openSync(plan.logFile, "a", 0o600);
  const logStart = fstatSync(log).size;
  const child = spawn(join(plan.binaries.binDir, "postgres"), serverArguments(plan), {
    cwd: "/",
    env: programEnvironment(),
    stdio: ["ignore", log, log],
    // Ctrl-C in a terminal reaches every process of its group; ours decides when the server goes.
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
  if (ended === undefined) child.kill("SIGQUIT");
  const tail = readFileSync(plan.logFile).subarray(logStart).toString().trim().split("\n").slice(-20);
  throw embeddedFailure(
    `PostgreSQL on ${plan.dataDir} did not start: ${ended ?? `not ready after ${plan.readyTimeoutMs} ms`}. ` +
      `The end of ${plan.logFile}:\n${tail.join("\n")}`,
  );
}

async function waitUntilReady(plan: ServerPlan, ended: () => string | undefined): Promise<boolean> {
  const endMs = systemClock.monotonicMs() + plan.readyTimeoutMs;
  while (ended() === undefined && systemClock.monotonicMs() < endMs) {
    const file = await readPostmasterFile(plan.dataDir);
    if (file?.status === "ready" && (await answers(plan.port, SUPERUSER))) return ended() === undefined;
    await sleep(POLL_MS);
  }
  return false;
}

/** Sends the signal and waits until the server has taken its file away, which it does last of all. */
export async function shutDown(
  dataDir: string,
  signal: "SIGINT" | "SIGQUIT",
  timeoutMs: number,
): Promise<void> {
  const server = await readPostmasterFile(dataDir);
  if (server === undefined || !isServer(server.pid)) return;
  process.kill(server.pid, signal);
  const endMs = systemClock.monotonicMs() + timeoutMs;
  while ((await readPostmasterFile(dataDir))?.pid === server.pid && isServer(server.pid)) {
    if (systemClock.monotonicMs() > endMs) {
      throw embeddedFailure(`PostgreSQL (process ${server.pid}) did not stop within ${timeoutMs} ms.`);
    }
    await sleep(POLL_MS);
  }
}

function serverArguments(plan: ServerPlan): string[] {
  const settings = {
    wal_level: "logical",
    ...plan.settings,
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
  };
  const pairs = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  return ["-D", plan.dataDir, "-p", String(plan.port), ...pairs];
}
