import { readFileSync, readlinkSync } from "node:fs";
import { randomToken } from "./random.ts";

// A process id is unique only within one boot of one machine, and within one container on it.
const machine = ((): string | undefined => {
  try {
    const start = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return `${start}/${readlinkSync("/proc/self/ns/pid")}`;
  } catch {
    return undefined; // not Linux, or /proc is not readable
  }
})();

/**
 * Returns boot, pid namespace, pid and start time of a process, or null where they cannot be read. Another
 * process on the same machine can pass it to `hasEnded`.
 */
export function locateProcess(pid: number): string | null {
  const life = machine === undefined ? undefined : readProcessStat(pid);
  return life === undefined ? null : `${machine}/${pid}/${life.since}`;
}

/**
 * True only if `location` is on this machine and its process has certainly ended. False whenever that is
 * unknown.
 */
export function hasEnded(location: string | null): boolean {
  const [, where, pid, since] = /^(.+)\/(\d+)\/(\d+)$/.exec(location ?? "") ?? [];
  if (where === undefined || where !== machine) return false;
  if (!exists(Number(pid))) return true;
  const life = readProcessStat(Number(pid));
  return life !== undefined && (life.since !== since || life.isOver);
}

/** This process. Its name is random, because addresses and process ids are reused. */
export const thisProcess: { readonly name: string; readonly place: string | null } = Object.freeze({
  name: randomToken().slice(0, 16),
  place: locateProcess(process.pid),
});

// Asks the kernel instead of /proc, which may hide the processes of other users.
function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

// The command name in brackets may contain anything; the fields after it are numbers. A zombie counts as
// ended.
function readProcessStat(pid: number): { readonly since: string; readonly isOver: boolean } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    const [state = "", ...numbers] = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const since = numbers[18];
    return since === undefined ? undefined : { since, isOver: state === "Z" || state === "X" };
  } catch {
    return undefined;
  }
}
