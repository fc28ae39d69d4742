import { existsSync, readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { systemErrorCode } from "./failure.ts";

/** What a running server tells about itself in its data folder. */
export interface PostmasterFile {
  readonly pid: number;
  readonly port: number;
  readonly status: string;
}

/** Undefined when no server claims the folder, or it is only just writing the file. */
export async function readPostmasterFile(dataDir: string): Promise<PostmasterFile | undefined> {
  const content = await readFile(join(dataDir, "postmaster.pid"), "utf8").catch(() => "");
  const lines = content.split("\n");
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  if (!(pid > 0) || !(port > 0)) return undefined;
  return { pid, port, status: lines[7]?.trim() ?? "" };
}

/** Whether this process is a living PostgreSQL server. The number in an old file may be anybody's by now. */
export function isPostgresProcess(pid: number): boolean {
  if (!existsSync("/proc/self/stat")) return isProcessAlive(pid);
  try {
    const [, name, state] = /\((.*)\) (\w)/.exec(readFileSync(`/proc/${pid}/stat`, "utf8")) ?? [];
    // Z: it has ended, only its parent has not noticed yet.
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
    // Somebody else's process may not be signalled, but it lives.
    return systemErrorCode(error) === "EPERM";
  }
}
