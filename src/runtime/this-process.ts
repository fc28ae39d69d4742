import { readFileSync, readlinkSync } from "node:fs";
import { randomToken } from "./random.ts";

// A number of a process means something only within one start of one machine, and within one container on it.
const machine = ((): string | undefined => {
  try {
    const start = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
    return `${start}/${readlinkSync("/proc/self/ns/pid")}`;
  } catch {
    return undefined; // not Linux, or nothing that we may see
  }
})();

/** Where a process runs and since when, for others on its machine; null where nobody could tell. */
export function locateProcess(pid: number): string | null {
  const life = machine === undefined ? undefined : readProcessStat(pid);
  return life === undefined ? null : `${machine}/${pid}/${life.since}`;
}

/** True only if that place is on this machine and its process is certainly gone; whatever is not known for sure is false. */
export function hasEnded(place: string | null): boolean {
  const [, where, pid, since] = /^(.+)\/(\d+)\/(\d+)$/.exec(place ?? "") ?? [];
  if (where === undefined || where !== machine) return false;
  if (!exists(Number(pid))) return true;
  const life = readProcessStat(Number(pid));
  return life !== undefined && (life.since !== since || life.isOver);
}

/** This process among all there ever were: an address or a number of the system may come again. */
export const thisProcess: { readonly name: string; readonly place: string | null } = Object.freeze({
  name: randomToken().slice(0, 16),
  place: locateProcess(process.pid),
});

// Asked of the kernel and not of /proc, where those of other users may be hidden.
function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

// The name in brackets may hold anything; what follows it are numbers. One that has ended may wait to be noticed by its parent.
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
